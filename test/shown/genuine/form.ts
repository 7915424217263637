// What a stream of engines, proxies and providers is here.
import type { Endpoint, Json, Stream } from '../stream.ts';

export interface Genuine extends Stream {
  readonly name: string;
}

export const of = (endpoint: Endpoint, name: string, events: readonly Json[], choices = 1): Genuine => ({
  endpoint,
  name,
  events,
  choices,
});

export const each = (events: readonly Json[], more: (i: number) => Json): Json[] =>
  events.map((event, i) => ({ ...event, ...more(i) }));

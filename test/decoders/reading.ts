// What a client's decoder makes of a streamed answer, and a reading by the standard alone to compare it with.
import { createHash } from 'node:crypto';
import { topLevelMembers, withoutMember } from '../../proto/json.ts';

/** A streamed answer as it reaches a client. */
export interface Answer {
  readonly status: number;
  readonly type: string;
  /** The body as it arrives, one chunk each. */
  readonly pieces: readonly Uint8Array[];
  /** What the body ends with in place of its end; null where it ends as it should. */
  readonly broken: Error | null;
}

export interface Reading {
  /** Each payload that a program was given: its text, or its value as {@link canonical} writes it. */
  readonly read: readonly string[];
  /** What the program was thrown; null where the answer ended for it as a whole one ends. */
  readonly threw: string | null;
}

export interface Decoder {
  /** With its version. */
  readonly name: string;
  /** What a program gets from it. */
  readonly gives: 'texts' | 'values';
  /** What it hands on of a value; undefined where that is nothing. The whole value by default. */
  ofValue?(value: unknown): unknown;
  read(answers: readonly Answer[]): Promise<Reading[]>;
  close?(): Promise<void>;
}

/** JSON whose texts are the same where the values are. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined';
  const members = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}:${canonical(one)}`);
  return `{${members.sort().join()}}`;
}

const DONE = '[DONE]';

/** The payloads as `decoder` gives them when it reads all of them. */
export function asGiven(decoder: Decoder, payloads: readonly string[]): string[] {
  const answer = payloads.filter((payload) => payload !== DONE);
  if (decoder.gives === 'texts') return answer;
  return answer.flatMap((payload) => {
    let value: unknown;
    try {
      value = JSON.parse(payload);
    } catch {
      return ['no JSON']; // no decoder gives this
    }
    const seen = decoder.ofValue === undefined ? value : decoder.ofValue(value);
    return seen === undefined ? [] : [canonical(seen)];
  });
}

export const isPrefix = (some: readonly string[], all: readonly string[]): boolean =>
  some.length <= all.length && some.every((one, i) => one === all[i]);

export interface Events {
  /** What the `data` lines of each event say. */
  readonly payloads: string[];
  /** The last event has its empty line. */
  readonly ended: boolean;
}

/** As the HTML Living Standard, §9.2.6, reads a stream, names of events left aside; a last event without its empty line too. */
export function readByStandard(bytes: Uint8Array): Events {
  const payloads: string[] = [];
  let data: string[] = [];
  const lines = new TextDecoder().decode(bytes).split(/\r\n|\n|\r/);
  const unended = lines.pop() ?? '';
  const take = (line: string): void => {
    const [, name, value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === 'data') data.push(value);
  };
  for (const line of lines) {
    if (line !== '') take(line);
    else if (data.length > 0) {
      payloads.push(data.join('\n'));
      data = [];
    }
  }
  if (unended !== '') take(unended);
  if (data.length === 0) return { payloads, ended: true };
  return { payloads: [...payloads, data.join('\n')], ended: false };
}

/** The payloads as they were hashed: without `[DONE]`, and without the attestation in one of them. */
export function withoutProof(payloads: readonly string[]): string[] {
  let cut = false;
  return payloads
    .filter((payload) => payload !== DONE)
    .map((payload) => {
      if (cut || !/attestation|\\u/.test(payload)) return payload;
      try {
        const members = topLevelMembers(payload);
        const at = members.findIndex(({ key }) => key === 'attestation');
        cut = at >= 0;
        return withoutMember(payload, members, at);
      } catch {
        return payload;
      }
    });
}

/** Each payload, and LF (docs/attestation.md §3). */
export function streamHash(payloads: readonly string[]): string {
  const hash = createHash('sha256');
  for (const payload of payloads) hash.update(`${payload}\n`);
  return hash.digest('hex');
}

// What the client is told with an answer of the backend's: made once for each head that the backend says.
import type { AnswerHead } from '../engine/engine.ts';
import { toClient } from '../engine/headers.ts';
import { type SharedHeaders, share } from '../shared-headers.ts';

/** Whether it is a stream follows from the head: whoever gets a head a second time must say the same of it. */
export function headersOf(head: AnswerHead, stream: boolean): SharedHeaders {
  head.made.toClient ??= share(
    stream ? { ...toClient(head.headers), 'x-accel-buffering': 'no' } : toClient(head.headers),
  );
  return head.made.toClient;
}

// What the backend of the fault suite says: every answer names its question, so that a crossed one shows.
import type { ServerResponse } from 'node:http';
import { chatBody, DONE, delta, finish, role, type Script, type Seen, usage } from '../support/backend.ts';

/** Every answer begins so. */
export const ANSWER = 'answer to ';

export const wordsFor = (question: string): string[] => ['answer ', 'to ', question, '.'];

export const answerTo = (question: string): string => wordsFor(question).join('');

export function askedIn(request: Seen): { question: string; stream: boolean } {
  const { messages, stream } = JSON.parse(request.body);
  return { question: messages[0].content, stream: stream === true };
}

/** The events that carry an answer's words. */
export const deltasFor = (question: string): string =>
  wordsFor(question)
    .map((word) => delta(word))
    .join('');

/** The events of a streamed answer, in order. */
export function eventsFor(question: string): string[] {
  return [role(), ...wordsFor(question).map((word) => delta(word)), finish(), usage(), DONE];
}

export function beginStream(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  response.flushHeaders();
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves when more may be written, or nobody is there to take it. */
export function writtenOut(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      response.off('drain', go).off('close', go);
      resolve();
    };
    response.once('drain', go).once('close', go);
  });
}

/** A right answer, streamed ones with `pause_ms` between their events. */
export function echo(pause_ms = 0): Script {
  return async (request, response) => {
    const { question, stream } = askedIn(request);
    if (!stream) {
      const body = chatBody(answerTo(question));
      response
        .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
        .end(body);
      return;
    }
    beginStream(response);
    for (const one of eventsFor(question)) {
      if (response.destroyed) return;
      response.write(one);
      if (pause_ms > 0) await sleep(pause_ms);
    }
    response.end();
  };
}

// The thread that drafts large attestations: nobody else waits while 4 MB are parsed, hashed and quoted.
import { Problem } from '../problem.ts';
import { answerQuestions } from '../thread.ts';
import { draft, type Parts } from './draft.ts';
import type { Drafted } from './drafter.ts';

answerQuestions<Parts, Drafted>(
  ({ answer, ...parts }) => {
    try {
      return draft({ ...parts, answer: 'body' in answer ? { body: bufferOf(answer.body) } : answer });
    } catch (error) {
      if (error instanceof Problem) return { refused: error.message };
      throw error;
    }
  },
  (drafted) => ('refused' in drafted ? [] : [drafted.raw.buffer, drafted.start.buffer]),
);

/** Between threads a Buffer becomes a Uint8Array. */
function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

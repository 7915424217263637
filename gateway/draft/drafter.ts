// Drafts attestations: small ones at once, large ones on a thread of their own.
import { Problem } from '../problem.ts';
import { Thread, ThreadEnded } from '../thread.ts';
import { badAnswer, type Draft, draft, type Parts } from './draft.ts';

export interface Drafter {
  /** @throws {Problem} backend_bad_response, attestation_unavailable. A promise rejects with the same. */
  draft(parts: Parts): Draft | Promise<Draft>;
  close(): Promise<void>;
}

/** What the thread says of one. */
export type Drafted = Draft | { readonly refused: string };

/** Beyond this, drafting takes longer than handing it over. */
const ASIDE_LENGTH = 256 * 1024;

export function createDrafter(): Drafter {
  const thread = new Thread<Parts, Drafted>(new URL('./worker.ts', import.meta.url));

  async function draftAside(parts: Parts): Promise<Draft> {
    const drafted = await thread.ask(parts).catch((cause) => {
      if (!(cause instanceof ThreadEnded)) throw cause;
      throw new Problem('attestation_unavailable', 'The attestation could not be drafted.', {
        cause,
        retryAfterSeconds: 1,
      });
    });
    if ('refused' in drafted) throw badAnswer(drafted.refused);
    return drafted;
  }

  return {
    draft: (parts) => (lengthOf(parts) > ASIDE_LENGTH ? draftAside(parts) : draft(parts)),
    close: () => thread.end(),
  };
}

function lengthOf({ request, answer }: Parts): number {
  return request.length + ('body' in answer ? answer.body : answer.response).length;
}

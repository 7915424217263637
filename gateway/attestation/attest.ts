// Makes an attestation: drafts it from the exchange, has the sidecar sign it and stores it for retrieval.
import { setTimeout as delay } from 'node:timers/promises';
import { delayAfter } from '../base/backoff.ts';
import { EMPTY } from '../base/bytes.ts';
import type { Body, Draft, Folded } from '../threads/jobs.ts';
import type { Offload } from '../threads/offload.ts';
import { bundleOf, compactJson, wholeJson } from './bundle.ts';
import {
  type AttestationParts,
  type Attested,
  type AttestedExchange,
  type Attestor,
  SessionChanged,
  type Sidecar,
  type Store,
  type TokenAndEvidence,
} from './interfaces.ts';
import { timedOut } from './sessions.ts';

const COMMA = Buffer.from(',');
const NO_MEMBERS: TokenAndEvidence = { nonce: '', json: EMPTY };
/** Backoff between drafts, for a sidecar whose session changes again and again. */
const REDRAFT = { min_ms: 10, max_ms: 1_000 };

export function createAttestor(offload: Offload, sidecar: Sidecar, store: Store, attest_timeout_ms: number): Attestor {
  /** raw names the sidecar's session, so it is drafted again, with another nonce, where that session has ended. */
  async function signed(
    exchange: AttestedExchange,
    response: Body | Folded,
    onDisconnect: (callback: () => void) => void,
  ): Promise<{ readonly draft: Omit<Draft, 'raw'>; readonly attested: Attested }> {
    const { owner, id, endpoint, request, watch, batch } = exchange;
    const timestamp = Math.floor(Date.now() / 1000);
    const began_ms = performance.now();
    for (let drafts = 1; ; drafts++) {
      const session = sidecar.session?.id;
      const drafting = offload.draft({ endpoint, session, request, response, timestamp }, exchange);
      const { raw, ...draft } =
        drafting instanceof Promise ? await withTimeout(drafting, began_ms + attest_timeout_ms) : drafting;
      if (drafts === 1) watch.attestationStarted();
      try {
        const options = { began_ms, batch, session };
        return { draft, attested: await sidecar.attest(owner, id, raw, draft.digest, onDisconnect, options) };
      } catch (error) {
        if (!(error instanceof SessionChanged)) throw error;
      }
      await Promise.all([sidecar.sessionChecked(), delay(delayAfter(drafts, REDRAFT))]);
    }
  }

  return {
    name: ({ owner, id }, completionId) => store.name(owner, id, completionId),
    async attest(exchange, response, onDisconnect) {
      const { owner, id, watch, compact } = exchange;
      const { draft, attested } = await signed(exchange, response, onDisconnect);
      const { completionId, start } = draft;
      const { members, batch, cpu, phases, devices, genuine } = attested;
      // The settled promise is in V8's old generation by now and would keep the bytes until the next major collection.
      attested.members = NO_MEMBERS;
      const level = !genuine ? 'none' : cpu === null ? 'gpu' : 'gpu+cpu';
      watch.attested(phases, batch?.tree_size ?? null, { nonce: members.nonce, devices, level });
      const nonce = Buffer.from(`"nonce":"${members.nonce}"`);
      const proof: AttestationParts = {
        start: Buffer.concat(batch === null ? [start, nonce, COMMA, members.json] : [start, nonce]),
        own: batch === null ? '' : `,"batch":${JSON.stringify(batch)}`,
        signed: cpu === null ? null : { session: cpu.session.id, signature: cpu.signature },
        bundle: bundleOf(batch === null ? null : members, cpu?.session ?? null),
      };
      store.keep(owner, id, completionId, proof, compact);
      return { json: compact ? compactJson(proof) : wholeJson(proof), tree_size: batch?.tree_size ?? null };
    },
  };
}

/** Limits the wait for drafts that run on the thread first. @throws {Problem} attestation_unavailable at `until_ms`. */
function withTimeout<T>(promise: Promise<T>, until_ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(timedOut()), Math.max(0, until_ms - performance.now()));
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

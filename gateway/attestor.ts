// Makes an attestation: builds raw from the exchange, has the sidecar sign it, keeps it for retrieval.
import { createHash } from 'node:crypto';
import { MAX_RAW_LENGTH } from '../proto/frames.ts';
import { buildRaw, type Nonce, type StreamDigest } from '../proto/raw.ts';
import type { Exchange } from './delivery/exchange.ts';
import { Problem } from './problem.ts';
import type { Sidecar } from './sidecar/client.ts';
import type { Store } from './store.ts';

export interface Answer {
  /** The backend's body exactly as received, or what its chunks fold into. */
  readonly response: string;
  readonly stream?: StreamDigest;
  readonly completionId: string | null;
}

export interface Attestor {
  /** The attestation as JSON text. @throws {Problem} attestation_unavailable; whatever `signal` was aborted with. */
  attest(exchange: Exchange, answer: Answer, signal: AbortSignal): Promise<string>;
}

export function createAttestor(sidecar: Sidecar, store: Store, now_ms: () => number): Attestor {
  return {
    async attest(exchange, answer, signal) {
      const { response, stream } = answer;
      const timestamp = Math.floor(now_ms() / 1000);
      const raw = buildRaw({
        request: exchange.request,
        response,
        timestamp,
        ...(stream === undefined ? {} : { stream }),
      });
      if (raw.length > MAX_RAW_LENGTH)
        throw new Problem('backend_bad_response', 'Request and answer together are larger than what is attested.');
      const nonce = createHash('sha256').update(raw, 'utf8').digest('hex') as Nonce;
      exchange.watch.attests();
      const { token, evidence, phases } = await sidecar.attest(exchange.id, raw, nonce, signal);
      exchange.watch.attested(phases);
      const json = JSON.stringify({ raw, nonce, token, evidence });
      store.keep(exchange.owner, exchange.id, answer.completionId, json);
      return json;
    },
  };
}

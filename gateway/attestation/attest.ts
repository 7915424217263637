// Makes an attestation: drafts it from the exchange, has the sidecar sign it and stores it for retrieval.
import { EMPTY } from '../http/bytes.ts';
import type { Offload } from '../offload/pool.ts';
import type { Attestor, Members, Sidecar, Store } from './interfaces.ts';
import { answerCpu, timedOut } from './sessions.ts';

const NO_MEMBERS: Members = { nonce: '', json: EMPTY, sharing: 1 };

export function createAttestor(offload: Offload, sidecar: Sidecar, store: Store, attest_timeout_ms: number): Attestor {
  return {
    name: ({ owner, id }, completionId) => store.name(owner, id, completionId),
    async attest(exchange, response, onDisconnect) {
      const { owner, id, endpoint, request, watch } = exchange;
      const timestamp = Math.floor(Date.now() / 1000);
      const began_ms = performance.now();
      const drafted = offload.draft({ endpoint, request, response, timestamp }, exchange);
      const { completionId, raw, digest, start, free_bytes } =
        drafted instanceof Promise ? await withTimeout(drafted, attest_timeout_ms) : drafted;
      watch.attestationStarted();
      const attested = await sidecar.attest(owner, id, raw, digest, onDisconnect, { began_ms, batch: exchange.batch });
      const { members, batch, cpu, phases, devices, genuine } = attested;
      // The settled promise is in V8's old generation by now and would keep the bytes until the next major collection.
      attested.members = NO_MEMBERS;
      const level = !genuine ? 'none' : cpu === null ? 'gpu' : 'gpu+cpu';
      watch.attested(phases, batch?.tree_size ?? null, { nonce: members.nonce, devices, level });
      const end = Buffer.from(
        (batch === null ? '' : `,"batch":${JSON.stringify(batch)}`) +
          (cpu === null ? '' : `,"cpu":${answerCpu(cpu.session, cpu.signature, exchange.session)}`) +
          '}',
      );
      const json = withMembers(start, free_bytes, members.json, end);
      store.keep(owner, id, completionId, batch === null ? json : { start, members, end });
      return { json, tree_size: batch?.tree_size ?? null };
    },
  };
}

/** Joins the three parts. The free bytes after `start` are used when they suffice. */
function withMembers(
  start: Uint8Array<ArrayBuffer>,
  free_bytes: number,
  members: Buffer,
  end: Buffer,
): Buffer<ArrayBuffer> {
  if (members.length + end.length > free_bytes) return Buffer.concat([start, members, end]);
  const all = Buffer.from(start.buffer, start.byteOffset, start.length + members.length + end.length);
  all.set(members, start.length);
  all.set(end, start.length + members.length);
  return all;
}

/** Limits the wait for drafts that run on the thread first. @throws {Problem} attestation_unavailable after `timeout_ms`. */
function withTimeout<T>(promise: Promise<T>, timeout_ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(timedOut()), timeout_ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

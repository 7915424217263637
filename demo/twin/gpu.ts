// A software twin of an H100 for the demo and the tests. It proves the format, and nothing else.
import { setTimeout as delay } from 'node:timers/promises';
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { type Attester, AttesterError, type Collected } from '../../sidecar/common/attester.ts';
import { TWIN } from './identity.ts';
import { chainPem, type Device, loadOrMakeRoot, makeDevice, makeIssuers, RootError } from './pki.ts';
import { makeReport } from './report.ts';
import { makeToken } from './token.ts';

interface SimulatedOptions {
  /** Where the test root is kept between starts. */
  readonly rootDir: string;
  /** How many GPUs the twin pretends to be: 1 to 16, 1 by default. */
  readonly devices?: number;
  /** How long a collection takes, in milliseconds; 0 by default. */
  readonly collectionMs?: number;
  readonly clock?: () => Date;
}

/** @throws {AttesterError} when the kept root cannot be used. */
export async function createSimulatedAttester(options: SimulatedOptions): Promise<Attester> {
  const { rootDir, devices: count = 1, collectionMs = 0, clock = () => new Date() } = options;
  if (!Number.isInteger(count) || count < 1 || count > 16)
    throw new AttesterError('collection_failed', 'the simulated attester has 1 to 16 devices', false);
  const root = await loadOrMakeRoot(rootDir).catch((cause: unknown) => {
    if (cause instanceof RootError) throw new AttesterError('collection_failed', cause.message, false, { cause });
    throw cause;
  });
  const issuers = makeIssuers(root);
  const devices = Array.from({ length: count }, () => makeDevice(issuers));
  const chains = devices.map((device) => Buffer.from(chainPem(device)).toString('base64'));

  return {
    name: 'simulated',
    devices: devices.map(() => ({ arch: TWIN.arch, model: TWIN.model })),
    simulated: { root: root.certificate.pem },
    async attest(nonce: Nonce, signal: AbortSignal, device?: number): Promise<Collected> {
      signal.throwIfAborted();
      if (collectionMs > 0) await delay(collectionMs, undefined, { signal }).catch(() => signal.throwIfAborted());
      const signers = [...devices.entries()].filter(([i]) => device === undefined || i === device);
      const evidence = await Promise.all(signers.map(([i, one]) => collect(nonce, one, chains[i] ?? '')));
      signal.throwIfAborted();
      const collected_ms = performance.now();
      const token = makeToken(
        nonce,
        signers.map(([, one]) => one),
        clock(),
      );
      return { token, evidence, appraisal_ms: performance.now() - collected_ms };
    },
    async close() {},
  };
}

async function collect(nonce: Nonce, device: Device, certificate_chain: string): Promise<Evidence> {
  const report = await makeReport(Buffer.from(nonce, 'hex'), device.key);
  return { arch: TWIN.arch, report: report.toString('base64'), certificate_chain };
}

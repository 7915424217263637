// ATTESTER=nras: collects through NVML and has NVIDIA's remote service appraise. The attestation token is NVIDIA's: anyone can verify it.
import type { Evidence } from '../../../proto/attestation/attestation.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { appraiseEvidence, CheckFailure, type DeviceClaims } from '../../../verify/index.ts';
import {
  checkTokenDigests,
  compareTokenWithReports,
  parseToken,
  verifyTokenSignature,
} from '../../../verify/service.ts';
import type { Attester, Collected } from '../../common/attester.ts';
import { until } from '../../common/lock.ts';
import { createCollector, type DeviceOptions } from '../../driver/gpu-collector.ts';
import { AppraisalError, chainRenewal, withRenewals } from '../appraisal.ts';
import {
  createNrasKeys,
  keysUrl,
  NRAS_URL,
  type NrasKeys,
  readAuthorization,
  refused,
  requestToken,
  ServiceUnavailable,
} from './service.ts';

interface NrasSettings {
  /** The service, or its address for GPUs; NVIDIA's `/v4/attest/gpu` by default. Its keys come from the same host. */
  readonly url?: string | undefined;
  /** Read at each request. Without one NVIDIA may refuse to serve. */
  readonly service_key_file?: string | undefined;
  /** The timeout of a request to the service; 30,000 by default. */
  readonly timeout_ms?: number;
  readonly fetch?: typeof globalThis.fetch;
  readonly clock?: () => Date;
  /** PEM, in place of NVIDIA's pinned root. */
  readonly roots?: { readonly device: string };
}

type NrasOptions = NrasSettings & DeviceOptions;

/** @throws {AttesterError} when this machine cannot attest, or the service key cannot be read. */
export async function createNrasAttester(options: NrasOptions): Promise<Attester> {
  const { timeout_ms = 30_000, fetch = globalThis.fetch, clock = () => new Date(), roots, service_key_file } = options;
  const url = gpuAddress(options.url ?? NRAS_URL);
  await readAuthorization(service_key_file);
  const collector = 'collector' in options ? options.collector : await createCollector({ ...options, switches: false });
  const keys = createNrasKeys({ url: keysUrl(url), timeout_ms, fetch, clock });
  const request = { url, timeout_ms, fetch, clock, service_key_file };
  const check = withRenewals(
    (nonce, evidence) => checkEvidence(nonce, evidence, { clock, roots }),
    [chainRenewal(collector)],
  );
  /** When the service sent Retry-After, and how long it is. */
  let pause = { at_ms: 0, for_ms: 0 };

  async function appraised(nonce: Nonce, collected: Collected['evidence'], signal: AbortSignal): Promise<Collected> {
    // Checked before the request: the service would refuse an outdated chain without naming a reason.
    const { evidence, devices } = await check(nonce, collected, signal);
    try {
      const token = await requestToken(nonce, evidence, request, signal);
      await checkNrasToken(token, nonce, devices, { keys, clock });
      return { token, evidence };
    } catch (error) {
      if (error instanceof ServiceUnavailable && error.retry_after_ms !== null)
        pause = { at_ms: clock().getTime(), for_ms: error.retry_after_ms };
      throw error;
    }
  }

  return {
    name: 'nras',
    devices: collector.devices,
    simulated: null,
    async attest(nonce: Nonce, signal: AbortSignal, device?: number): Promise<Collected> {
      const since_ms = clock().getTime() - pause.at_ms;
      const wait_ms = pause.for_ms - since_ms;
      // A negative time shows that the clock was set back, so the time left is not known.
      if (since_ms >= 0 && wait_ms > 0)
        throw new ServiceUnavailable(
          'nras_busy',
          `NVIDIA's service asks for ${Math.ceil(wait_ms / 1000)} s more`,
          wait_ms,
        );
      const collected = await collector.collect(nonce, signal, device);
      const collected_ms = performance.now();
      const { token, evidence } = await until(appraised(nonce, collected, signal), signal);
      return { token, evidence, appraisal_ms: performance.now() - collected_ms };
    },
    close: () => collector.close(),
  };
}

function gpuAddress(service: string): string {
  const url = new URL(service);
  return url.pathname === '/' ? new URL(new URL(NRAS_URL).pathname, url).href : url.href;
}

// Verifies evidence before it is sent to NVIDIA's service, and the service's attestation token before it is returned: signed by NVIDIA,
// over our nonce, about our devices, with a positive result.

interface EvidenceOptions {
  readonly clock: () => Date;
  /** PEM, in place of NVIDIA's pinned root. */
  readonly roots: { readonly device: string } | undefined;
}

interface TokenOptions {
  readonly keys: NrasKeys;
  readonly clock: () => Date;
}

/**
 * Checks signatures and chains of the reports; the service appraises the rest.
 * @returns the claims of the reports.
 * @throws {AppraisalError}
 */
async function checkEvidence(
  nonce: Nonce,
  evidence: readonly Evidence[],
  { clock, roots }: EvidenceOptions,
): Promise<readonly DeviceClaims[]> {
  const report = await appraiseEvidence(evidence, {
    at: clock(),
    roots,
    expected: { nonce },
    without: { referenceValues: true, revocation: true },
  });
  const failed = report.checks.find((check) => check.status === 'fail');
  if (failed?.code !== undefined) throw new AppraisalError(failed.code, failed.detail, false);
  return report.claims.devices;
}

/** @param devices the claims of their reports, from `checkEvidence`. @throws {AttesterError} */
async function checkNrasToken(
  token: string,
  nonce: Nonce,
  devices: readonly DeviceClaims[],
  { keys, clock }: TokenOptions,
): Promise<void> {
  try {
    const parsed = parseToken(token);
    if (parsed.kind !== 'nras') throw refused('token_refused', 'the answer is not a token of this service');
    if (parsed.nonces.some((one) => one !== nonce)) throw refused('wrong_nonce', 'the token is about another nonce');
    await checkTokenDigests(parsed);
    await verifyTokenSignature(parsed, { keys: keys.kept(), fetchKeys: () => keys.renewed(), at: clock() });
    if (parsed.overallResult !== true) throw refused('refused', "NVIDIA's service says that the device does not pass");
    compareTokenWithReports(parsed, devices);
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    if (error.cause instanceof ServiceUnavailable) throw error.cause;
    if (error.code === 'token_key_unavailable')
      throw new ServiceUnavailable(error.code, error.message, null, { cause: error });
    throw new AppraisalError(error.code, error.message, false, { cause: error });
  }
}

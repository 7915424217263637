// ATTESTER=native: collects through NVML and appraises with verify/ in this process. The attestation token is ours, signed by a key
// made at start.
import { randomBytes } from 'node:crypto';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { checkRim } from '../../../verify/service.ts';
import type { Attester, Collected } from '../../common/attester.ts';
import { until } from '../../common/lock.ts';
import { createCollector, type DeviceOptions } from '../../driver/gpu-collector.ts';
import { chainRenewal, withRenewals } from '../appraisal.ts';
import { type AppraisalOptions, collateralRenewal, createAppraiser, withOutages } from './appraise.ts';
import { createKeptCollateral, createStore } from './kept-collateral.ts';
import { makeToken, makeTokenKey, type PublicKey } from './token.ts';

interface NativeSettings extends Pick<AppraisalOptions, 'clocks' | 'roots'> {
  /** Where reference values and OCSP responses are kept across restarts. */
  readonly cache_dir: string;
  /** NVIDIA's by default. */
  readonly rim_url?: string | undefined;
  readonly ocsp_url?: string | undefined;
  readonly fetch?: typeof globalThis.fetch;
  readonly clock?: () => Date;
  /** Attests once at the start, in the background, so that all collateral is kept before the first request; true by default. */
  readonly warm?: boolean;
  /** Called with one line about what failed in the background. */
  readonly onFailure?: (message: string) => void;
}

type NativeOptions = NativeSettings & DeviceOptions;

export interface NativeAttester extends Attester {
  /** The keys that verify this process's attestation tokens. */
  readonly token_keys: { readonly keys: readonly PublicKey[] };
  /** Fetches again the collateral that is due, as a timer does. */
  renew(): Promise<void>;
}

const RENEW_EVERY_MS = 5 * 60_000;

/** @throws {AttesterError} when this machine cannot attest: no driver, no GPU, CC mode off, devtools mode on. */
export async function createNativeAttester(options: NativeOptions): Promise<NativeAttester> {
  const { clock = () => new Date(), onFailure = () => {}, roots, clocks } = options;
  const collector = 'collector' in options ? options.collector : await createCollector(options);
  const key = makeTokenKey();
  const collateral = createKeptCollateral({
    store: createStore({ folder: options.cache_dir, onFailure }),
    fetch: options.fetch ?? globalThis.fetch,
    clock,
    onFailure,
    checkRim: (document) => checkRim(document, { roots, at: clocks?.rim ?? clock() }),
    rim_url: serviceBase(options.rim_url),
    ocsp_url: options.ocsp_url,
  });
  const appraiser = withOutages(createAppraiser({ collateral, clock, clocks, roots }), collateral);
  const appraise = withRenewals(appraiser, [chainRenewal(collector), collateralRenewal(collateral)]);

  async function attest(nonce: Nonce, signal: AbortSignal, device?: number): Promise<Collected> {
    const collected = await collector.collect(nonce, signal, device);
    const collected_ms = performance.now();
    const { evidence, devices } = await until(appraise(nonce, collected, signal), signal);
    const token = await makeToken(nonce, devices, clock(), key);
    return { token, evidence, appraisal_ms: performance.now() - collected_ms };
  }

  const closing = new AbortController();
  if (options.warm ?? true)
    attest(randomBytes(32).toString('hex') as Nonce, closing.signal).catch((error: Error) => {
      if (!closing.signal.aborted) onFailure(`the first attestation failed: ${error.message}`);
    });
  const timer = setInterval(() => void collateral.renew(), RENEW_EVERY_MS).unref();

  return {
    name: 'native',
    devices: collector.devices,
    simulated: null,
    token_keys: { keys: [key.public] },
    renew: () => collateral.renew(),
    attest,
    async close() {
      clearInterval(timer);
      closing.abort(new Error('the attester closes'));
      await collector.close();
    },
  };
}

/** Without the `/v1/rim/` that NVIDIA's own tools expect in RIM_URL: verify/ adds that itself. */
const serviceBase = (url?: string) => url?.replace(/\/+$/, '').replace(/\/v1\/rim$/, '');

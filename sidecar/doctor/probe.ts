// One short request to each service that the attester will need: whether it answers, with what, and what time it has.
import type { DoctorConfig } from './config.ts';
import type { Facts } from './facts.ts';
import { messageOf } from './facts.ts';
import type { Host } from './host.ts';

export interface Probe {
  readonly service: 'rim' | 'ocsp' | 'nras';
  readonly url: string;
  /** For `rim`: what was asked for. */
  readonly rim_id: string | null;
  /** null: no answer. */
  readonly http_status: number | null;
  /** Why there is no answer. */
  readonly error: string | null;
  /** What the service's Date header says beyond our clock; null without one. */
  readonly clock_ahead_ms: number | null;
}

const TIMEOUT_MS = 5_000;
/** A reference value that NVIDIA has published, for a machine whose own is not known. */
const KNOWN_RIM = 'NV_GPU_DRIVER_GH100_550.90.07';

export function probeServices(host: Host, config: DoctorConfig, facts: Facts): Promise<Probe[]> {
  // The id needs the chip's name: for Hopper it is one, for Blackwell there are several.
  const hopper = facts.driver !== null && facts.gpus[0]?.arch === 'HOPPER';
  const rim_id = hopper ? `NV_GPU_DRIVER_GH100_${facts.driver}` : KNOWN_RIM;
  const rim = () => probe(host, 'rim', `${config.rim_url}/v1/rim/${rim_id}`, rim_id);
  const ocsp = () => probe(host, 'ocsp', config.ocsp_url, null);
  const nras = () => probe(host, 'nras', config.nras_url, null);
  return Promise.all(config.attester === 'nras' ? [nras(), rim(), ocsp()] : [rim(), ocsp()]);
}

async function probe(host: Host, service: Probe['service'], url: string, rim_id: string | null): Promise<Probe> {
  const sent_ms = host.now().getTime();
  try {
    const answer = await host.fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) });
    const middle_ms = (sent_ms + host.now().getTime()) / 2;
    await answer.body?.cancel();
    const date_ms = Date.parse(answer.headers.get('date') ?? '');
    const clock_ahead_ms = Number.isNaN(date_ms) ? null : date_ms - middle_ms;
    return { service, url, rim_id, http_status: answer.status, error: null, clock_ahead_ms };
  } catch (error) {
    return { service, url, rim_id, http_status: null, error: causeOf(error), clock_ahead_ms: null };
  }
}

/** fetch says "fetch failed" and keeps the reason in `cause`. */
const causeOf = (error: unknown) =>
  messageOf(error instanceof Error && error.cause !== undefined ? error.cause : error);

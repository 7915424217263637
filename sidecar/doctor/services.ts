// Can NVIDIA's services be reached, and is there a reference value for this driver?
import type { Facts } from './facts.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Probe } from './probe.ts';

const WORDS = {
  rim: { what: 'reference values (RIM)', variable: 'RIM_URL' },
  ocsp: { what: 'revocation (OCSP)', variable: 'OCSP_URL' },
  nras: { what: 'remote attestation (NRAS)', variable: 'NRAS_URL' },
} as const;

export const checkServices = (probes: readonly Probe[], facts: Facts): Finding[] =>
  probes.map((probe) => checkService(probe, facts));

function checkService({ service, url, rim_id, http_status, error }: Probe, { driver }: Facts): Finding {
  const { what, variable } = WORDS[service];
  const { origin, host } = new URL(url);
  if (http_status === null)
    return fail(
      service,
      `${what}: ${origin} does not answer (${error})`,
      `allow this machine to reach ${host}, set https_proxy, or name a mirror in ${variable}`,
    );
  const seen = `${what}: ${origin} answers ${http_status}`;
  if (http_status === 401 || http_status === 403)
    return fail(service, seen, 'set NVIDIA_ATTESTATION_SERVICE_KEY, or look whether a proxy refused');
  if (http_status === 407)
    return fail(service, seen, 'the proxy wants a name and a password: put them into https_proxy');
  if (http_status === 429)
    return warn(service, seen, 'requests are limited: keep RIMs and OCSP answers, or use a service key');
  if (http_status >= 500) return warn(service, seen, 'the service is not well; try again later');
  if (http_status >= 300 && http_status < 400)
    return warn(
      service,
      seen,
      `it sends us elsewhere: name the real address in ${variable}, or look for a captive proxy`,
    );
  if (service === 'rim' && http_status === 404) return missing(seen, rim_id ?? '', driver);
  return ok(service, service === 'rim' ? `${seen} for ${rim_id}` : seen);
}

function missing(seen: string, rim_id: string, driver: string | null): Finding {
  if (driver !== null && rim_id.endsWith(`_${driver}`))
    return fail(
      'rim',
      `${seen} for ${rim_id}`,
      `NVIDIA has no reference values for driver ${driver}: install one that has`,
    );
  return warn('rim', `${seen} for ${rim_id}`, 'is this a RIM service? It does not know a well-known id');
}

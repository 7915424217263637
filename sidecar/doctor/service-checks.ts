// The doctor's checks beyond the node: services, clocks, and one trial attestation.

import { buildRaw } from '../../proto/attestation/raw.ts';
import { readStatement } from '../../proto/attestation/statement.ts';
import type { CpuType } from '../../verify/cpu.ts';
import {
  appraiseAttestation,
  createCollateral,
  type Jwks,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  type VerificationReport,
} from '../../verify/index.ts';
import { NRAS_KEYS_URL } from '../../verify/service.ts';
import type { SidecarConfig } from '../common/config.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import { type DraftRaw, type Facts, type Host, messageOf, reasonOf, type Trial } from './host.ts';

// One short request to each service that the attester needs: its status, or why there is no response, and the service's clock.

interface Probe {
  readonly service: 'rim' | 'ocsp' | 'nras' | 'kds' | 'pcs';
  readonly url: string;
  /** For `rim`: the id in the request. */
  readonly rim_id: string | null;
  /** null: no response. */
  readonly http_status: number | null;
  /** The reason why there is no response. */
  readonly error: string | null;
  /** How far the service's Date header is ahead of our clock; null without one. */
  readonly clock_ahead_ms: number | null;
}

const PROBE_TIMEOUT_MS = 5_000;
/** A reference value that NVIDIA has published, for a machine whose own is not known. */
const KNOWN_RIM = 'NV_GPU_DRIVER_GH100_550.90.07';

/** @param cpu the processor that signs, where one does. */
export function probeServices(host: Host, config: SidecarConfig, facts: Facts, cpu: CpuType | null): Promise<Probe[]> {
  // The id needs the chip's name: for Hopper it is one, for Blackwell there are several.
  const hopper = facts.driver !== null && facts.gpus[0]?.arch === 'HOPPER';

  const rim_id = hopper ? `NV_GPU_DRIVER_GH100_${facts.driver}` : KNOWN_RIM;
  const at = (url: string, path = '') => url.replace(/\/+$/, '') + path;
  const rim = () => probe(host, 'rim', at(config.rim_url ?? NVIDIA_RIM_URL, `/v1/rim/${rim_id}`), rim_id);
  const ocsp = () => probe(host, 'ocsp', at(config.ocsp_url ?? NVIDIA_OCSP_URL), null);
  const nras = () => probe(host, 'nras', at(config.nras_url ?? new URL(NRAS_KEYS_URL).origin), null);
  const kds = () => probe(host, 'kds', at(config.kds_url, '/vcek/v1/Genoa/cert_chain'), null);
  const pcs = () => probe(host, 'pcs', at(config.pcs_url, '/tdx/certification/v4/qe/identity'), null);
  const ofTheProcessor = cpu === null ? [] : [cpu === 'TDX' ? pcs() : kds()];
  return Promise.all([...(config.attester === 'nras' ? [nras()] : []), rim(), ocsp(), ...ofTheProcessor]);
}

async function probe(host: Host, service: Probe['service'], url: string, rim_id: string | null): Promise<Probe> {
  const sent_ms = host.now().getTime();
  try {
    const response = await host.fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    const middle_ms = (sent_ms + host.now().getTime()) / 2;
    await response.body?.cancel();
    const date_ms = Date.parse(response.headers.get('date') ?? '');
    const clock_ahead_ms = Number.isNaN(date_ms) ? null : date_ms - middle_ms;
    return { service, url, rim_id, http_status: response.status, error: null, clock_ahead_ms };
  } catch (error) {
    return { service, url, rim_id, http_status: null, error: reasonOf(error), clock_ahead_ms: null };
  }
}

// Can NVIDIA's services be reached, and is there a reference value for this driver?

const WORDS = {
  rim: { what: 'reference values (RIM)', variable: 'RIM_URL' },
  ocsp: { what: 'revocation (OCSP)', variable: 'OCSP_URL' },
  nras: { what: 'remote attestation (NRAS)', variable: 'NRAS_URL' },
  kds: { what: "AMD's certificates (KDS)", variable: 'KDS_URL' },
  pcs: { what: "Intel's collateral (PCS)", variable: 'PCS_URL' },
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
    return fail(
      service,
      seen,
      isNvidias(service)
        ? 'name the service key in NRAS_SERVICE_KEY_FILE, or look whether a proxy refused'
        : 'look whether a proxy refused',
    );
  if (http_status === 407)
    return fail(service, seen, 'the proxy wants a name and a password: put them into https_proxy');
  if (http_status === 429)
    return warn(
      service,
      seen,
      isNvidias(service)
        ? 'requests are limited: keep RIMs and OCSP answers, or use a service key'
        : `requests are limited: what was fetched is kept in COLLATERAL_DIR, or name a mirror in ${variable}`,
    );
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

const isNvidias = (service: Probe['service']) => service !== 'kds' && service !== 'pcs';

function missing(seen: string, rim_id: string, driver: string | null): Finding {
  if (driver !== null && rim_id.endsWith(`_${driver}`))
    return fail(
      'rim',
      `${seen} for ${rim_id}`,
      `NVIDIA has no reference values for driver ${driver}: install one that has`,
    );
  return warn('rim', `${seen} for ${rim_id}`, 'is this a RIM service? It does not know a well-known id');
}

// Does our clock agree with the services'? OCSP responses and certificates are valid for windows of time.

/** A clock that shows an earlier time is wrong. */
const EARLIEST = Date.parse('2026-01-01T00:00:00Z');
/** A Date header has whole seconds. */
const WARN_MS = 10_000;
const FAIL_MS = 300_000;
const TODO =
  'let chrony or systemd-timesyncd set the clock (timedatectl set-ntp true); a guest may take it from its host';

export function checkClock(probes: readonly Probe[], now: Date): Finding[] {
  const here = now.toISOString();
  if (now.getTime() < EARLIEST) return [fail('clock', `the clock says ${here}`, TODO)];
  const ahead = probes.flatMap(({ clock_ahead_ms }) => (clock_ahead_ms === null ? [] : [clock_ahead_ms]));
  if (ahead.length === 0) return [skip('clock', `the clock says ${here}; no service told the time`)];
  // A cache on the way can only make a date older, so the newest date is the nearest to the truth.
  const ahead_ms = Math.max(...ahead);
  const seconds = Math.abs(Math.round(ahead_ms / 1000));
  const seen = `the clock is ${seconds} s ${ahead_ms > 0 ? 'behind' : 'ahead of'} the services`;
  if (Math.abs(ahead_ms) > FAIL_MS) return [fail('clock', seen, TODO)];
  if (Math.abs(ahead_ms) > WARN_MS) return [warn('clock', seen, TODO)];
  return [ok('clock', `the clock agrees with the services (${here})`)];
}

// Does something keep our clock right?

export async function checkClockSource(host: Host): Promise<Finding[]> {
  const name = 'clock_sync';
  const ran = await host.run('timedatectl', ['show', '--property=NTPSynchronized', '--value']);
  const synchronized = ran?.exit_code === 0 ? ran.stdout.trim() : '';
  if (synchronized === 'yes') return [ok(name, 'something keeps the clock right')];
  if (synchronized === 'no') return [warn(name, 'nothing keeps the clock right (NTPSynchronized=no)', TODO)];
  return [skip(name, 'no timedatectl answers here: in a container the clock is the node’s, look there')];
}

// One attestation from the running sidecar, verified here as a client would verify it.

const NAME = 'trial';
const TRIAL_TIMEOUT_MS = 5_000;
const REQUEST = '{"model":"doctor","messages":[{"role":"user","content":"countersign doctor"}]}';
const RESPONSE =
  '{"id":"doctor","object":"chat.completion","model":"doctor","choices":[{"index":0,"message":{"role":"assistant","content":"trial"},"finish_reason":"stop"}]}';

export async function checkTrial(host: Host, config: SidecarConfig): Promise<Finding[]> {
  const { sidecar_socket } = config;
  const timestamp = Math.floor(host.now().getTime() / 1000);
  const draft: DraftRaw = (session) => buildRaw({ session, request: REQUEST, response: RESPONSE, timestamp });
  let trial: Trial;
  try {
    trial = await host.trialAttestation(sidecar_socket, draft);
  } catch (error) {
    return [unreachable(error, host, config)];
  }
  const { hello, raw, result, session } = trial;
  if ('failure' in result)
    return [
      fail(
        NAME,
        `the sidecar (${hello.attester}) did not attest: ${result.failure}`,
        result.failure.startsWith('cc_lost') ? 'restart the guest' : 'see the lines above and its log',
      ),
    ];
  const { nonce, token, evidence, cpu: signed } = result;
  const cpu = signed && session && { ...JSON.parse(session.cpu), signature: signed.signature };
  const report = await appraise(JSON.stringify({ raw, nonce, token, evidence, cpu }), trial, host, config);
  const ofSession = checkSessionOf(report, trial, config, host.now());
  // The processor's failures are reported by `checkSessionOf`.
  const failed = report.checks.filter(({ name, status }) => status === 'fail' && !name.startsWith('cpu_'));
  if (failed.length > 0) return [invalid(failed), ...ofSession];
  const why = hello.attester_reason === undefined ? '' : `, chosen because ${hello.attester_reason}`;
  const seen = `the sidecar (${hello.attester}${why}) attested ${hello.devices.length} device(s), and it verifies${report.level === 'none' ? '' : ` (${report.level})`}`;
  if (hello.simulated === null || config.attester === 'simulated') return [ok(NAME, seen), ...ofSession];
  return [
    warn(NAME, `${seen}; its GPU is simulated`, 'the sidecar that runs has ATTESTER=simulated: start it with another'),
    ...ofSession,
  ];
}

function appraise(text: string, { hello }: Trial, host: Host, config: SidecarConfig): Promise<VerificationReport> {
  const { rim_url, ocsp_url } = config;
  return appraiseAttestation(text, {
    at: host.now(),
    collateral: createCollateral({
      fetch: host.fetch,
      timeout_ms: TRIAL_TIMEOUT_MS,
      ...(rim_url === null ? {} : { rim_url }),
      ...(ocsp_url === null ? {} : { ocsp_url }),
    }),
    ...(hello.simulated === null ? {} : { simulatedRoot: hello.simulated.root }),
    ...(hello.token_keys === undefined ? {} : { countersignKeys: hello.token_keys as Jwks }),
    fetchNrasKeys: async (url) =>
      (await (await host.fetch(url, { signal: AbortSignal.timeout(TRIAL_TIMEOUT_MS) })).json()) as Jwks,
  });
}

function invalid(failed: VerificationReport['checks']): Finding {
  const reasons = failed.slice(0, 3).map(({ code, detail }) => `${code}: ${detail}`);
  const seen = `the sidecar attested, and it does not verify: ${reasons.join('; ')}`;
  return fail(NAME, seen, 'save an attestation and look at countersign verify FILE');
}

function unreachable(error: unknown, { user }: Host, { sidecar_socket }: SidecarConfig): Finding {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return skip(NAME, `no sidecar runs on ${sidecar_socket}`);
  if (code === 'EACCES')
    return fail(
      NAME,
      `${user} may not open ${sidecar_socket}`,
      'run the doctor, and the gateway, in the group that owns the socket',
    );
  return fail(NAME, `${sidecar_socket}: ${messageOf(error)}`, 'is that a sidecar of this version? Look at its log');
}

// Does the processor vouch for the trial attestation?

/** @param report of the trial attestation. */
function checkSessionOf(
  { checks, claims }: VerificationReport,
  { hello, session }: Trial,
  { cpu_evidence }: SidecarConfig,
  now: Date,
): Finding[] {
  const name = 'session';
  if (session === null) {
    if (cpu_evidence === 'off') return [skip(name, 'no processor signs')];
    if (hello.cpu === null)
      return [warn(name, 'the sidecar that runs was started with CPU_EVIDENCE=off', 'restart it with these settings')];
    return [warn(name, 'the sidecar has no session with its processor', "see the line `cpu`, and the sidecar's log")];
  }
  const failed = checks.filter(({ name: check, status }) => check.startsWith('cpu_') && status === 'fail');
  if (failed.length > 0)
    return [
      fail(
        name,
        `a processor signed, and it does not verify: ${failed.map(({ code, detail }) => `${code}: ${detail}`).join('; ')}`,
        'the code says which half is wrong: docs/security.md',
      ),
    ];
  const minutes = Math.floor((readStatement(session.statement).not_after - now.getTime() / 1000) / 60);
  const launch = launchWords(readStatement(session.statement).launch, claims.cpu?.host_data ?? '');
  const who = `${claims.cpu?.product ?? claims.cpu?.type ?? 'processor'}${claims.cpu?.simulated === true ? ', simulated' : ''}`;
  return [ok(name, `signed by the session of a ${who}, for another ${minutes} min; it verifies${launch}`)];
}

/** Our own host puts the launch file's digest into HOST_DATA or MRCONFIGID; elsewhere the image holds the file. */
function launchWords(launch: string | null, hostData: string): string {
  if (launch === null) return '';
  return hostData.startsWith(launch)
    ? '; HOST_DATA or MRCONFIGID names this launch file'
    : '; HOST_DATA and MRCONFIGID name no such launch file: the image must hold it';
}

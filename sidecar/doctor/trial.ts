// One attestation from the running sidecar, verified here as anybody would verify it.
import { buildRaw } from '../../proto/raw.ts';
import { appraiseAttestation, createCollateral, type Jwks, type VerificationReport } from '../../verify/index.ts';
import type { Answered } from './ask.ts';
import type { DoctorConfig } from './config.ts';
import { messageOf } from './facts.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import type { Host } from './host.ts';

const NAME = 'trial';
const TIMEOUT_MS = 5_000;
const REQUEST = '{"model":"doctor","messages":[{"role":"user","content":"countersign doctor"}]}';
const RESPONSE =
  '{"id":"doctor","object":"chat.completion","model":"doctor","choices":[{"index":0,"message":{"role":"assistant","content":"trial"},"finish_reason":"stop"}]}';

export async function checkTrial(host: Host, config: DoctorConfig): Promise<Finding[]> {
  const { socket_path } = config;
  const raw = buildRaw({ request: REQUEST, response: RESPONSE, timestamp: Math.floor(host.now().getTime() / 1000) });
  let answered: Answered;
  try {
    answered = await host.askSidecar(socket_path, raw);
  } catch (error) {
    return [unreachable(error, host, config)];
  }
  const { hello, result } = answered;
  if ('failure' in result)
    return [
      fail(
        NAME,
        `the sidecar (${hello.attester}) did not attest: ${result.failure}`,
        'see the lines above and its log',
      ),
    ];
  const { nonce, token, evidence } = result;
  const report = await appraise(JSON.stringify({ raw, nonce, token, evidence }), answered, host, config);
  if (!report.valid) return [invalid(report)];
  const seen = `the sidecar (${hello.attester}) attested ${hello.devices.length} device(s), and it verifies${report.level === 'none' ? '' : ` (${report.level})`}`;
  if (hello.simulated === null || config.attester === 'simulated') return [ok(NAME, seen)];
  return [
    warn(NAME, `${seen}; its GPU is simulated`, 'the sidecar that runs has ATTESTER=simulated: start it with another'),
  ];
}

function appraise(text: string, { hello }: Answered, host: Host, config: DoctorConfig): Promise<VerificationReport> {
  const { rim_url, ocsp_url } = config;
  return appraiseAttestation(text, {
    at: host.now(),
    collateral: createCollateral({ fetch: host.fetch, rim_url, ocsp_url, timeout_ms: TIMEOUT_MS }),
    ...(hello.simulated === null ? {} : { simulatedRoot: hello.simulated.root }),
    ...(hello.token_keys === undefined ? {} : { countersignKeys: hello.token_keys as Jwks }),
    fetchNrasKeys: async (url) =>
      (await (await host.fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) })).json()) as Jwks,
  });
}

function invalid({ checks }: VerificationReport): Finding {
  const failed = checks.filter(({ status }) => status === 'fail').map(({ code, detail }) => `${code}: ${detail}`);
  const seen = `the sidecar attested, and it does not verify: ${failed.slice(0, 3).join('; ')}`;
  return fail(NAME, seen, 'save an attestation and look at countersign verify FILE');
}

function unreachable(error: unknown, { user }: Host, { socket_path }: DoctorConfig): Finding {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return skip(NAME, `no sidecar runs on ${socket_path}`);
  if (code === 'EACCES')
    return fail(
      NAME,
      `${user} may not open ${socket_path}`,
      'run the doctor, and the gateway, in the group that owns the socket',
    );
  return fail(NAME, `${socket_path}: ${messageOf(error)}`, 'is that a sidecar of this version? Look at its log');
}

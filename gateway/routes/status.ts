// GET /health for operators and load balancers: 200 while chat without tee works and new requests are accepted.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import type { Sidecar, Store } from '../attestation/interfaces.ts';
import type { Canary } from '../backend/backend.ts';
import type { BackendProbe } from '../backend/probe.ts';
import { type GatewayConfig, hasKeys } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Context } from '../http/context.ts';
import { type SharedDocument, sendDocument, sharedDocument } from '../http/document.ts';
import { ANYONE } from '../keys/keys.ts';
import { expositionOf } from '../telemetry/metrics-server.ts';
import type { Telemetry } from '../telemetry/telemetry.ts';
import type { AuditLog } from '../usage/audit-log.ts';
import { type Amounts, DAYS, dayOf, NOTHING, sum, type UsageBook, type UsageRecord } from '../usage/usage.ts';

interface StatusDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly canary: Canary;
  readonly book: UsageBook;
  readonly audit: AuditLog | null;
  readonly telemetry: Telemetry;
  readonly version: string;
  readonly draining: () => boolean;
}

/** What a probe may require of /health. */
const REQUIRABLE = ['tee', 'canary'] as const;
type Requirable = (typeof REQUIRABLE)[number];

export function health(deps: StatusDeps, probe: BackendProbe) {
  const { config, sidecar, canary, version, draining } = deps;
  return async (c: Context): Promise<Response> => {
    const required = requiredIn(c);
    const backend = { ...(await probe()), canary: canary.result };
    const { state, unavailable } = sidecar;
    const attests = state === 'connected' && unavailable === null;
    const sensible = backend.canary.state !== 'pending' && canary.usable;
    const ready = { tee: attests && (canary.usable || config.canary_stops === 'none'), canary: sensible };
    const healthy = attests && backend.canary.state !== 'wrong';
    const reached = backend.status === 'ok' && !healthy ? 'degraded' : backend.status;
    // After `cc_lost` the driver accepts no work for these GPUs any more, until the guest restarts.
    const stopped = unavailable?.code === 'cc_lost' || (config.canary_stops === 'all' && !canary.usable);
    const served = stopped ? 'down' : reached;
    const { reachable } = deps.store;
    const status = draining() ? 'draining' : served;
    const body = {
      status,
      ready,
      backend,
      sidecar: sidecarHealth(sidecar),
      store: reachable === null ? null : { status: reachable ? 'connected' : 'away' },
      audit: auditHealth(deps.audit),
      version,
    };
    const serves = status !== 'down' && status !== 'draining' && required.every((name) => ready[name]);
    return c.json(body, serves ? 200 : 503);
  };
}

export function sidecarHealth({ state, hello, unavailable, refused }: Sidecar) {
  return {
    status: state,
    attester: hello?.attester ?? null,
    attester_reason: hello?.attester_reason ?? null,
    devices: hello?.devices ?? [],
    simulated: hello === null ? null : hello.simulated !== null,
    cpu: hello?.cpu?.type ?? null,
    trouble: unavailable,
    refused: refused === null ? null : { code: refused.code, message: refused.message },
  };
}

/** The names in `?require=tee,canary`. @throws {Problem} invalid_request for any other name */
function requiredIn(c: Context): readonly Requirable[] {
  const names = (c.req.queries('require') ?? []).flatMap((list) => list.split(','));
  return names.map((name) => {
    const known = REQUIRABLE.find((one) => one === name);
    if (known !== undefined) return known;
    throw new Problem('invalid_request', `require: may name ${REQUIRABLE.join(' and ')}, with a comma between.`, {
      param: 'require',
    });
  });
}

function auditHealth(audit: AuditLog | null) {
  if (audit === null) return null;
  const { failing, lost } = audit.state();
  return failing === null ? { status: 'ok', lost } : { status: 'failing', code: failing, lost };
}

// GET /metrics and /metrics/picker: Prometheus text. With METRICS_PORT, API keys or REUSE_PORT, the main port does not serve them.

export function metrics({ config, telemetry }: Pick<StatusDeps, 'config' | 'telemetry'>) {
  return async (c: Context): Promise<Response> => {
    if (config.metrics_port !== null)
      throw new Problem('not_found', `Metrics are served only on port ${config.metrics_port} (METRICS_PORT).`);
    if (config.reuse_port)
      throw new Problem(
        'not_found',
        'With REUSE_PORT each gateway serves its metrics on a port of its own: set METRICS_PORT.',
      );
    if (hasKeys(config))
      throw new Problem('not_found', 'With API keys, metrics are served on a port of their own: set METRICS_PORT.');
    const { body, headers } = await expositionOf(telemetry.registry, c.req.path, c.req.header('accept-encoding'));
    return c.body(body, 200, headers);
  };
}

// GET /openapi.json: the OpenAPI document of the service, which is openapi.yaml as JSON.

let document: SharedDocument | null = null;

export function openapiDocument(): SharedDocument {
  document ??= sharedDocument('application/json', JSON.stringify(readOpenapi()));
  return document;
}

function readOpenapi(): object {
  const text = readFileSync(new URL('openapi.yaml', import.meta.url), 'utf8');
  // The file repeats its parts more often than the library allows for a file of a stranger.
  const { 'x-shared': _, ...served } = parse(text, { merge: true, maxAliasCount: -1 });
  return served;
}

export function openapi(c: Context): Response {
  return sendDocument(c, openapiDocument());
}

// GET /usage: the usage of the caller's API key, by day and model.

export function usage({ book }: Pick<StatusDeps, 'book'>) {
  return async (c: Context): Promise<Response> => {
    const { caller } = c.env;
    if (caller === ANYONE)
      throw new Problem('invalid_request', 'Usage is kept of API keys, and this gateway has none (API_KEYS_FILE).');
    const records = [...(await book.records(caller.name))].sort(byDayAndModel);
    const today = records.filter(({ day }) => day === dayOf(Date.now())).map(({ amounts }) => amounts);
    const spent = today.reduce(sum, NOTHING);
    const limit = caller.limits.tokens_per_day ?? 0;
    return c.json({
      key: caller.name,
      tokens_per_day: limit === 0 ? null : limit,
      tokens_today: spent.input_tokens + spent.output_tokens,
      days: DAYS,
      total: inSeconds(records.map(({ amounts }) => amounts).reduce(sum, NOTHING)),
      records: records.map(({ day, model, amounts }) => ({ day, model, ...inSeconds(amounts) })),
    });
  };
}

const inSeconds = ({ gpu_us, ...counts }: Amounts) => ({ ...counts, gpu_seconds: gpu_us / 1e6 });

function byDayAndModel(a: UsageRecord, b: UsageRecord): number {
  if (a.day !== b.day) return a.day < b.day ? -1 : 1;
  return a.model < b.model ? -1 : 1;
}

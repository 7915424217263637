import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { diag } from '@opentelemetry/api';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError, loadConfig } from '../../gateway/base/config.ts';
import { startTracing } from '../../gateway/telemetry/tracing.ts';
import { answer, chatAnswer, chatStream } from '../support/backend.ts';
import { CHAT, chat } from '../support/client.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Service, startService } from '../support/harness.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status: { code?: number };
}

/** A small OTLP/HTTP receiver: keeps every span, every path and header that it was asked with. */
const received: Span[] = [];
const asked: { url: string; headers: Record<string, unknown>; resource: string }[] = [];
let collector: Server;
let service: Service;
let gateway: RunningProcess;
let url: string;

const CANARY = 'xyzzy';
const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';

beforeAll(async () => {
  collector = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      const { resourceSpans } = JSON.parse(body);
      for (const { resource, scopeSpans } of resourceSpans) {
        asked.push({ url: request.url ?? '', headers: request.headers, resource: JSON.stringify(resource) });
        for (const { spans } of scopeSpans) received.push(...spans);
      }
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  service = await startService({}, { collectionMs: 20 });
  gateway = startProcess('gateway/main.ts', [], {
    PORT: '0',
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    ALLOW_SIMULATED: '1',
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}/`,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=open-sesame',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    OTEL_BSP_SCHEDULE_DELAY: '20',
  });
  const port = () => /"port":(\d+)/.exec(gateway.output())?.[1];
  await eventually(() => port() !== undefined && gateway.output().includes('"connected"'), 15_000);
  url = `http://127.0.0.1:${port()}`;
});
beforeEach(() => {
  service.backend.script = chatAnswer('Hello.');
  service.backend.seen.length = 0;
});
afterAll(async () => {
  await gateway.kill('SIGTERM');
  await service.close();
  await new Promise((resolve) => collector.close(resolve));
});

/** All spans of the request's trace, once its request span is there. */
async function spansOf(id: unknown): Promise<Span[]> {
  const root = () => received.find((span) => value(span, 'countersign.request.id') === id);
  await eventually(() => root() !== undefined);
  const { traceId, spanId } = root() as Span;
  const mine = received.filter((span) => span.traceId === traceId);
  const within = (span: Span): boolean =>
    span.spanId === spanId || mine.some((one) => one.spanId === span.parentSpanId && within(one));
  return mine.filter(within);
}

const value = (span: Span, key: string) => {
  const found = span.attributes.find((attribute) => attribute.key === key)?.value;
  return found === undefined ? undefined : Object.values(found)[0];
};
const named = (spans: Span[], name: string): Span => {
  const span = spans.find((one) => one.name === name);
  if (span === undefined) throw new Error(`no span ${name} among ${spans.map((one) => one.name).join(', ')}`);
  return span;
};
const from = (span: Span) => BigInt(span.startTimeUnixNano);
const until = (span: Span) => BigInt(span.endTimeUnixNano);

describe('a traced request', () => {
  it("continues the client's trace, and the backend continues it from there", async () => {
    const traceparent = `00-${TRACE}-${PARENT}-01`;
    const got = await chat(url, CHAT, { traceparent, tracestate: 'vendor=1', baggage: 'a=b' });
    const spans = await spansOf(got.headers['x-request-id']);
    const request = named(spans, 'POST /v1/chat/completions');
    const backend = named(spans, 'chat scripted');
    expect(request).toMatchObject({ traceId: TRACE, parentSpanId: PARENT, kind: 2 });
    expect(backend).toMatchObject({ traceId: TRACE, parentSpanId: request.spanId, kind: 3 });
    const headers = service.backend.seen[0]?.headers ?? {};
    expect(headers.traceparent).toBe(`00-${TRACE}-${backend.spanId}-01`);
    expect(headers).toMatchObject({ tracestate: 'vendor=1', baggage: 'a=b' });
    expect(value(backend, 'gen_ai.operation.name')).toBe('chat');
    expect(value(backend, 'gen_ai.request.model')).toBe('scripted');
    expect(value(backend, 'http.response.status_code')).toBe(200);
    expect(['input', 'output'].map((name) => Number(value(backend, `gen_ai.usage.${name}_tokens`)))).toEqual([3, 2]);
    expect(value(backend, 'server.address')).toBe('127.0.0.1');
    expect(value(request, 'http.route')).toBe('/v1/chat/completions');
  });

  it('begins a trace of its own where the client sent none, or none that can be read', async () => {
    for (const headers of [{}, { traceparent: `00-${TRACE}-0000000000000000-01`, tracestate: 'vendor=1' }]) {
      service.backend.seen.length = 0;
      const spans = await spansOf((await chat(url, CHAT, headers)).headers['x-request-id']);
      const request = named(spans, 'POST /v1/chat/completions');
      expect(request.traceId).not.toBe(TRACE);
      expect(request.parentSpanId ?? '').toBe('');
      expect(service.backend.seen[0]?.headers.traceparent).toContain(request.traceId);
      expect(service.backend.seen[0]?.headers.tracestate).toBeUndefined();
    }
  });

  it('has spans for the attestation and for what the sidecar spent its time on, each within the one around it', async () => {
    service.backend.script = chatStream(['a', 'b'], 10);
    const got = await chat(url, { ...CHAT, stream: true, tee: true });
    const spans = await spansOf(got.headers['x-request-id']);
    const request = named(spans, 'POST /v1/chat/completions');
    const backend = named(spans, 'chat scripted');
    const attest = named(spans, 'attest');
    expect(value(request, 'countersign.tee')).toBe('attested');
    expect(attest.parentSpanId).toBe(request.spanId);
    for (const step of ['queue', 'collection', 'appraisal', 'check']) {
      const span = named(spans, `sidecar ${step}`);
      expect(span.parentSpanId).toBe(attest.spanId);
      expect(from(span) >= from(attest) && until(span) <= until(attest), step).toBe(true);
    }
    const collection = named(spans, 'sidecar collection');
    expect(until(collection) - from(collection)).toBeGreaterThan(19_000_000n);
    expect(from(backend) >= from(request) && until(attest) <= until(request)).toBe(true);
    const line = () =>
      gateway
        .output()
        .split('\n')
        .find((one) => one.includes(String(got.headers['x-request-id'])));
    await eventually(() => line() !== undefined);
    expect(JSON.parse(line() ?? '{}').trace_id).toBe(request.traceId);
  });

  it('says when something failed', async () => {
    service.backend.script = answer('{"error":{"message":"slow down"}}', 429);
    const spans = await spansOf((await chat(url, CHAT)).headers['x-request-id']);
    const backend = named(spans, 'chat scripted');
    expect(backend.status.code).toBe(2);
    expect(value(backend, 'error.type')).toBe('http_429');
    expect(value(backend, 'gen_ai.usage.input_tokens')).toBeUndefined();
  });

  it('that its client does not sample leaves no span, and the backend hears so', async () => {
    const trace = 'f'.repeat(32);
    await chat(url, CHAT, { traceparent: `00-${trace}-${PARENT}-00` });
    await spansOf((await chat(url, CHAT)).headers['x-request-id']); // whatever came before it is here too
    expect(received.some((span) => span.traceId === trace)).toBe(false);
    expect(service.backend.seen[0]?.headers.traceparent).toMatch(new RegExp(`^00-${trace}-[0-9a-f]{16}-00$`));
  });

  it('names the backend that was asked where there are several', async () => {
    const { port } = new URL(service.backend.url);
    const file = join(service.folder.path, 'backends.json');
    writeFileSync(file, JSON.stringify({ backends: [{ url: 'http://127.0.0.1:1/v1' }, { url: service.backend.url }] }));
    const several = await startGatewayProcess({
      BACKENDS_FILE: file,
      SIDECAR_SOCKET: service.sidecar.socket,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}/`,
      OTEL_BSP_SCHEDULE_DELAY: '20',
    });
    try {
      const spans = await spansOf((await chat(several.url, CHAT)).headers['x-request-id']);
      const backend = named(spans, 'chat scripted');
      expect([value(backend, 'server.address'), Number(value(backend, 'server.port'))]).toEqual(['127.0.0.1', +port]);
    } finally {
      await several.stop('SIGTERM');
    }
  });

  it('tells the collector who speaks, and never what was said', async () => {
    service.backend.script = chatAnswer(`${CANARY}-answer`);
    const headers = { authorization: `Bearer ${CANARY}-key`, 'user-agent': CANARY };
    const messages = [{ role: 'user', content: `${CANARY}-prompt` }];
    const got = await chat(url, { ...CHAT, messages, tee: true }, headers);
    await spansOf(got.headers['x-request-id']);
    expect(JSON.stringify(received)).not.toContain(CANARY);
    expect(asked[0]?.url).toBe('/v1/traces');
    expect(asked[0]?.headers).toMatchObject({ 'x-collector-key': 'open-sesame', 'content-type': 'application/json' });
    for (const known of ['countersign-gateway', 'deployment.environment.name', 'service.version'])
      expect(asked[0]?.resource).toContain(known);
  });
});

describe('without its variables', () => {
  it("tracing is off: the client's context goes through as it is, and nothing of OpenTelemetry's SDK is loaded", async () => {
    const traceparent = `00-${TRACE}-${PARENT}-01`;
    await chat(service.gateway.url, CHAT, { traceparent, tracestate: 'vendor=1' });
    expect(service.backend.seen[0]?.headers).toMatchObject({ traceparent, tracestate: 'vendor=1' });
    const lister = startProcess('test/telemetry/loaded.ts', [join(service.folder.path, 'none.sock')]);
    await lister.exited;
    expect(lister.output()).toContain('gateway/app.ts');
    expect(lister.output()).not.toMatch(/@opentelemetry\/(sdk|exporter|resources|core)/);
  });

  const env = { BACKEND_URL: 'http://127.0.0.1:1/v1' };
  const endpoint = { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };
  it('is off, and on by an endpoint alone', () => {
    expect(loadConfig(env).tracing).toBe(false);
    expect(loadConfig({ ...env, OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'always_on' }).tracing).toBe(false);
    expect(loadConfig(endpoint).tracing).toBe(true);
    expect(loadConfig({ ...env, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:1/spans' }).tracing).toBe(true);
    expect(loadConfig({ ...endpoint, OTEL_SDK_DISABLED: 'True' }).tracing).toBe(false);
    expect(loadConfig({ ...endpoint, OTEL_TRACES_EXPORTER: 'none' }).tracing).toBe(false);
  });

  it.each([
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317' }, /^OTEL_EXPORTER_OTLP_ENDPOINT must be an http/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://me:secret@collector' }, /^OTEL_EXPORTER_OTLP_ENDPOINT .* no password$/],
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /^OTEL_EXPORTER_OTLP_PROTOCOL must be http/],
    [{ OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'grpc' }, /^OTEL_EXPORTER_OTLP_TRACES_PROTOCOL must be http/],
    [{ OTEL_TRACES_EXPORTER: 'zipkin' }, /^OTEL_TRACES_EXPORTER must be otlp or none/],
  ])('what it cannot do stops the start: %j', (wrong, message) => {
    expect(() => loadConfig({ ...env, ...wrong })).toThrow(ConfigError);
    expect(() => loadConfig({ ...env, ...wrong })).toThrow(message);
  });
});

describe("OpenTelemetry's own variables", () => {
  afterEach(() => void vi.unstubAllEnvs());

  /** Begins an exchange under the variables: the flags that the backend gets, by those of the client, and what is logged. */
  async function begin(variables: Record<string, string>, flags: string) {
    for (const [name, given] of Object.entries(variables)) vi.stubEnv(name, given);
    const lines: string[] = [];
    const tracer = startTracing(null, pino({}, { write: (line: string) => void lines.push(line) }));
    const headers: Record<string, string> = {};
    tracer.begin(flags === '' ? {} : { traceparent: `00-${TRACE}-${PARENT}-${flags}` }).toBackend(headers);
    await tracer.close();
    diag.disable();
    return { flags: headers.traceparent?.slice(-2), log: lines.join('') };
  }

  it.each([
    // sampler, argument, and what the backend gets without a trace of the client's, with one that it samples, and one that it does not
    ['', '', '01', '01', '00'],
    ['always_on', '', '01', '01', '01'],
    ['always_off', '', '00', '00', '00'],
    ['traceidratio', '0', '00', '00', '00'],
    ['traceidratio', '1.', '01', '01', '01'],
    ['parentbased_always_off', '', '00', '01', '00'],
    ['parentbased_traceidratio', '1e-9', '00', '01', '00'],
    ['parentbased_traceidratio', '', '01', '01', '00'],
  ])('choose the sampler: %j with %j', async (sampler, part, none, sampled, unsampled) => {
    const variables = { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: part };
    expect(await begin(variables, '')).toEqual({ flags: none, log: '' });
    expect(await begin(variables, '01')).toEqual({ flags: sampled, log: '' });
    expect(await begin(variables, '00')).toEqual({ flags: unsampled, log: '' });
  });

  it.each([
    ['OTEL_TRACES_SAMPLER', 'sometimes'],
    ['OTEL_TRACES_SAMPLER', 'constructor'],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '0'],
    ['OTEL_BSP_MAX_QUEUE_SIZE', 'many'],
    ['OTEL_EXPORTER_OTLP_TIMEOUT', '-1'],
  ])('with a wrong value are logged, and their default applies: %s=%s', async (name, given) => {
    const { flags, log } = await begin({ [name]: given }, '');
    expect(flags).toBe('01');
    expect(log).toContain(name);
  });
});

// Asks gateways with a simulated GPU for everything that the examples of /openapi.json show.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import {
  EXAMPLE_KEY,
  EXAMPLE_REQUESTS,
  type ExampleFile,
  type ExampleRequest,
  type ExampleResponse,
  type ExampleResponses,
} from '../../gateway/routes/openapi/examples.ts';
import { createSimulatedCpu } from '../../sidecar/cpu/simulated/simulated.ts';
import { eventually, freePort, type Service, startGateway, startService } from '../../test/support/harness.ts';
import { exampleBackend, MODELS } from './backend.ts';

/** A gateway's URL by what is special about it; '' for the usual one. */
type Stages = Readonly<Record<'' | NonNullable<ExampleRequest['stage']>, string>>;

export async function askForExamples(): Promise<ExampleFile> {
  const closing: (() => Promise<void>)[] = [];
  try {
    const { stages, simulated_root } = await openStages(closing);
    const answers: Record<string, Record<string, ExampleResponse>> = {};
    for (const [operation, named] of Object.entries(EXAMPLE_REQUESTS)) {
      const given: Record<string, ExampleResponse> = {};
      answers[operation] = given;
      for (const [name, one] of Object.entries(named)) {
        // It answers what the same key has used.
        if (one.stage === 'keys') await useKey(stages.keys);
        given[name] = await ask(stages[one.stage ?? ''], one, answers);
      }
    }
    return { simulated_root, answers };
  } finally {
    for (const close of closing.reverse()) await close();
  }
}

/** What is to be closed at the end is added to `closing`. */
async function openStages(closing: (() => Promise<void>)[]): Promise<{ stages: Stages; simulated_root: string }> {
  const open = async (...args: Parameters<typeof startService>) => {
    const service = await startService(...args);
    closing.push(() => service.close());
    service.backend.script = exampleBackend;
    service.backend.models = MODELS;
    return service;
  };
  const beside = async ({ backend, sidecar }: Service, env: Record<string, string>) => {
    const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket, ...env });
    closing.push(() => gateway.close());
    return gateway.url;
  };
  const service = await open({ CANARY_INTERVAL_MS: '60000' });
  const { path: folder } = service.folder;
  const keys = join(folder, 'keys');
  writeFileSync(keys, `docs:sha256:${createHash('sha256').update(EXAMPLE_KEY).digest('hex')} tokens-per-day=100000\n`);
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder });
  const confidential = await open({}, { cpu: { collector, required: true } });
  const stages = {
    '': service.gateway.url,
    keys: await beside(service, { API_KEYS_FILE: keys }),
    cpu: confidential.gateway.url,
    down: await beside(service, { BACKEND_URL: `http://127.0.0.1:${await freePort()}/v1` }),
  };
  for (const url of Object.values(stages)) await connected(url);
  await eventually(async () => (await health(stages[''])).backend.canary.state === 'good');
  // The processor signs its first session after the sidecar is connected.
  await eventually(async () => {
    const { statusCode, body } = await request(`${stages.cpu}/v1/attestation/session`);
    await body.dump();
    return statusCode === 200;
  });
  const roots = [service.sidecar.attester, confidential.sidecar.attester, collector].map(
    ({ simulated }) => simulated?.root,
  );
  return { stages, simulated_root: roots.join('') };
}

interface Health {
  readonly sidecar: { readonly status: string };
  readonly backend: { readonly canary: { readonly state: string } };
}
const health = async (url: string) => (await (await request(`${url}/health`)).body.json()) as Health;
const connected = (url: string) => eventually(async () => (await health(url)).sidecar.status === 'connected');

async function useKey(url: string): Promise<void> {
  const tee = EXAMPLE_REQUESTS.createChatCompletion?.tee as ExampleRequest;
  await ask(url, { ...tee, headers: { authorization: `Bearer ${EXAMPLE_KEY}` } }, {});
}

async function ask(url: string, { method, path, headers, body }: ExampleRequest, answers: ExampleResponses) {
  const sent = typeof body === 'function' ? body(answers) : body;
  const response = await request(url + (typeof path === 'function' ? path(answers) : path), {
    method,
    headers: { ...headers, ...(sent === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(sent === undefined ? {} : { body: JSON.stringify(sent) }),
  });
  const type = String(response.headers['content-type']).split(';', 1)[0] ?? '';
  const text = await response.body.text();
  return { status: response.statusCode, type, body: type.endsWith('json') ? JSON.parse(text) : text };
}

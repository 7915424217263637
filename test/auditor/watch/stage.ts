// A fleet of simulated nodes for tests of the watch: services of one root, and before them fronts that lie, hang or send on.
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { readNodes } from '../../../auditor/watch/nodes.ts';
import { releaseSearch } from '../../../auditor/watch/release.ts';
import { type Settings, watch } from '../../../auditor/watch/run.ts';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import type { VerifyOptions } from '../../../verify/index.ts';
import { ask } from '../../support/client.ts';
import { type Folder, type Service, startService, temporaryFolder } from '../../support/harness.ts';
import { LAUNCH, LAUNCH_SHA256, WEIGHTS } from '../../support/launch-file.ts';
import { currentKeys } from '../../support/sealed-client.ts';

export type Behaviour = (request: IncomingMessage, body: Buffer, response: ServerResponse) => void | Promise<void>;

export interface Front {
  readonly url: string;
  behaviour: Behaviour;
  /** The requests that came, as `POST /v1/chat/completions`, with their key. */
  readonly seen: { readonly line: string; readonly authorization: string | undefined }[];
  close(): Promise<void>;
}

export async function startFront(behaviour: Behaviour): Promise<Front> {
  const seen: Front['seen'] = [];
  const server = createServer(async (request, response) => {
    seen.push({
      line: `${request.method} ${request.url?.split('?')[0]}`,
      authorization: request.headers.authorization,
    });
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    await front.behaviour(request, Buffer.concat(chunks), response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const front: Front = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    behaviour,
    seen,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return front;
}

/** Sends requests on, and changes the text of what comes back. */
export const through =
  (url: () => string, changed: (path: string, text: string) => string = (_path, text) => text): Behaviour =>
  async (request, body, response) => {
    const { host: _, connection: __, 'content-length': ___, ...headers } = request.headers as Record<string, string>;
    const init = request.method === 'POST' ? { method: 'POST', body: new Uint8Array(body) } : {};
    const answer = await fetch(`${url()}${request.url}`, { headers, ...init });
    const bytes = Buffer.from(await answer.arrayBuffer());
    const type = answer.headers.get('content-type') ?? '';
    const sent = type.includes('json') ? Buffer.from(changed(request.url ?? '', bytes.toString())) : bytes;
    response.writeHead(answer.status, { 'content-type': type }).end(sent);
  };

export const hangs: Behaviour = () => {};

export interface Fleet {
  /** PEM of every node's test root. */
  readonly root: string;
  readonly folder: Folder;
  readonly plain: Service;
  readonly sealing: Service;
  /** As `plain`, with another GPU. */
  readonly other: Service;
  readonly front: (behaviour: Behaviour) => Promise<Front>;
  close(): Promise<void>;
}

/** A service in a guest that was started with a launch file, and the list that has both. */
async function startMeasured() {
  const rootDir = temporaryFolder();
  const launch = Buffer.from(LAUNCH_SHA256, 'hex');
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: rootDir.path, launch });
  rootDir.remove();
  const service = await startService({ SEALED: 'required' }, { cpu: { collector, required: true, launch: LAUNCH } });
  const { report } = await collector.collect(Buffer.alloc(64), AbortSignal.timeout(5_000));
  const measurement = Buffer.from(report, 'base64').toString('hex', 0x90, 0xc0);
  const cpu = [{ type: 'SEV_SNP', measurement: [measurement], launch_in: 'host_data' }];
  const root = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
  return { service, root, reference: { version: 1, cpu, launch: [LAUNCH_SHA256] } };
}

/** Two services with a GPU, and one with a processor too, which offers sealed prompts. */
export async function startFleet(): Promise<Fleet> {
  const folder = temporaryFolder();
  const plain = await startService();
  const other = await startService();
  const { service: sealing, root: ofProcessor, reference } = await startMeasured();
  writeFileSync(join(folder.path, 'known.json'), JSON.stringify(reference));
  const fronts: Front[] = [];
  await currentKeys(sealing.gateway.url);
  // The first proof of a service starts its threads, which takes seconds on a busy machine.
  const body = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tee": true}';
  for (const { gateway } of [plain, other])
    expect((await ask(`${gateway.url}/v1/chat/completions`, { body })).status).toBe(200);
  const roots = [plain, other].map(({ sidecar }) => sidecar.attester.simulated?.root ?? '');
  const root = roots.join('') + ofProcessor;
  writeFileSync(join(folder.path, 'root.pem'), root);
  return {
    root,
    folder,
    plain,
    sealing,
    other,
    async front(behaviour) {
      const front = await startFront(behaviour);
      fronts.push(front);
      return front;
    },
    async close() {
      for (const one of [...fronts, plain, other, sealing]) await one.close();
      folder.remove();
    },
  };
}

/** Writes nodes.json. @returns its path */
export function nodesFile(folder: string, nodes: readonly object[], more: object = {}): string {
  const file = join(folder, 'nodes.json');
  const named = nodes.map((one, i) => ({ name: `node-${i + 1}`, model: 'm', level: 'gpu', ...one }));
  writeFileSync(file, JSON.stringify({ watch: 'Test fleet', nodes: named, ...more }));
  return file;
}

/** One round. */
export async function once(file: string, out: string, root: string, settings: Partial<Settings> = {}): Promise<number> {
  const all: Settings = {
    ...{ folder: out, every_ms: 10_000, once: true, max_bytes: 64 * 1024 * 1024, json: false, timeout_ms: 4_000 },
    ...settings,
  };
  const nodes = readNodes(file);
  return watch(nodes, all, trusting(root), await releaseSearch({ offline: false, collateral: null }, nodes));
}

/** As if the test roots were those of makers, so that a simulation reaches the levels of hardware. */
const trusting = (root: string): VerifyOptions => ({
  roots: { device: root },
  cpu: { roots: { amd: root } },
  without: { referenceValues: true, revocation: true },
});

/** A guest that nobody has: what runs is then on no list. */
export const OTHER_SOFTWARE = {
  version: 1,
  cpu: [{ type: 'SEV_SNP', measurement: ['ab'.repeat(48)], launch_in: 'host_data' }],
  launch: ['ab'.repeat(32)],
};

/** What is demanded of a node that is `sealing`. */
export const MEASURED = { level: 'measured', reference: 'known.json' } as const;

/** The six of the fleet. `change`: from now on another device signs in the node `moved`. */
export async function sixNodes(fleet: Fleet): Promise<{ readonly nodes: readonly object[]; change(): void }> {
  let target = fleet.plain.gateway.url;
  const plain = () => fleet.plain.gateway.url;
  const forging = await fleet.front(through(plain, (_path, text) => text.replace('Hello.', 'Hullo.')));
  const hanging = await fleet.front(hangs);
  const moved = await fleet.front(through(() => target));
  const wrong = JSON.stringify({ status: 'ok', backend: { canary: { state: 'wrong' } } });
  const babbling = await fleet.front(through(plain, (path, text) => (path === '/health' ? wrong : text)));
  writeFileSync(join(fleet.folder.path, 'other.json'), JSON.stringify(OTHER_SOFTWARE));
  const nodes = [
    { name: 'sealing', url: fleet.sealing.gateway.url, ...MEASURED, weights: WEIGHTS.verity_root },
    { name: 'forging', url: forging.url },
    { name: 'hanging', url: hanging.url },
    { name: 'moved', url: moved.url },
    { name: 'other', url: fleet.sealing.gateway.url, ...MEASURED, reference: 'other.json' },
    { name: 'babbling', url: babbling.url },
  ];
  return {
    nodes,
    change() {
      target = fleet.other.gateway.url;
    },
  };
}

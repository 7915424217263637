// A guest that answers: gateway, sidecar and engine are pulled by digest from a registry in the test's own network, the engine loads its model
// from the volume that the launch file names, and what it answers carries a proof. The machine's processor and GPU are simulated.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifyAttestation } from '../../verify/index.ts';
import { writeModel } from '../engines/model.ts';
import { MissingPart } from '../support/debian.ts';
import { freePort, temporaryFolder } from '../support/harness.ts';
import { BUILD_MS, boot, composeOf, disk, linesOf, RECIPE, run, sha256 } from './guest.ts';
import { type Registry, startRegistry } from './registry.ts';
import { API_KEY, MODEL, type Service, serviceImages } from './service.ts';
import { weightsToolsOrNull } from './tools.ts';
import { type Made, makeWeights } from './volumes.ts';

const LAUNCH = fileURLToPath(new URL('../../scripts/launch.ts', import.meta.url));
const LAUNCH_FILE = '/run/countersign/launch.json';
const bin = weightsToolsOrNull();
const folder = temporaryFolder();
afterAll(() => folder.remove());
const at = (...names: string[]) => join(folder.path, ...names);
/** Docker's start and three pulls without a processor's help take minutes. */
const ANSWER_MS = 1_500_000;
const REQUEST = { model: MODEL, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 8, tee: true };

describe.skipIf(bin === null)('a guest with weights', () => {
  let registry: Registry;
  let service: Service | null = null;
  let weights: Made;
  const model = writeModel('1');

  beforeAll(async () => {
    registry = await startRegistry();
    try {
      service = await serviceImages(registry, at('service'));
    } catch (error) {
      if (!(error instanceof MissingPart)) throw error;
      return console.warn(`SKIPPED: a guest that answers: this machine lacks ${error.message}`);
    }
    mkdirSync(at('model'));
    writeFileSync(at('model', 'model.gguf'), model);
    weights = await makeWeights(bin ?? '', at('model'), at('weights'), 'acme/tiny@1');
    // In the image of this test alone: a registry without TLS.
    mkdirSync(at('files/etc/docker'), { recursive: true });
    writeFileSync(at('files/etc/docker/daemon.json'), JSON.stringify({ 'insecure-registries': ['10.0.2.0/24'] }));
    run(join(RECIPE, 'build.sh'), [at('image')], { FILES: at('files') });
  }, BUILD_MS);
  afterAll(() => registry?.close());

  it('answers with tee, by the model of its volume', { timeout: ANSWER_MS }, async (context) => {
    if (service === null) return context.skip();
    const compose = composeFor(service, weights.verity_root);
    writeFileSync(at('compose.json'), compose);
    const launch = run(process.execPath, [LAUNCH, at('compose.json'), '--weights', at('weights', 'weights.json')]);
    const config = disk(at('config'), { 'launch.json': launch, 'compose.json': compose });
    const port = await freePort();
    let answer: Response | null = null;
    let text = '';
    const began = Date.now();
    const said = await boot({
      image: at('image'),
      config,
      launch: sha256(launch),
      disks: weights.disks,
      network: `user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:${port}-:8080`,
      memory: 4096,
      limit_ms: ANSWER_MS,
      during: async () => {
        while (answer?.status !== 200) {
          await new Promise((resolve) => setTimeout(resolve, 2_000));
          answer = await ask(port);
          text = (await answer?.text().catch(() => '')) ?? '';
        }
      },
    });
    console.log(
      linesOf(said),
      `\nanswered ${Math.round((Date.now() - began) / 1000)} s after its start\n${text.slice(0, 300)}`,
    );
    // The engine's fingerprint is the hash of the file that it loaded, inside its container.
    expect(JSON.parse(text).system_fingerprint).toBe(`fp_${sha256(model).slice(0, 10)}`);
    const { device, amd } = service.roots;
    const options = {
      roots: { device },
      cpu: { roots: { amd } },
      without: { referenceValues: true, revocation: true },
    };
    const { claims } = await verifyAttestation(text, options);
    const measurement = [claims.cpu?.measurement ?? ''];
    const reference = {
      version: 1,
      cpu: [{ type: 'SEV_SNP', measurement, launch_in: 'host_data' }],
      launch: [sha256(launch)],
    } as const;
    const report = await verifyAttestation(text, {
      ...options,
      cpu: { ...options.cpu, reference, weights: weights.verity_root },
    });
    expect(report.level).toBe('measured');
    expect(report.proven.join('\n')).toContain(`acme/tiny@1, root ${weights.verity_root}`);
    expect(JSON.parse(report.exchange.request)).toEqual(REQUEST);
    const other = { ...options, cpu: { ...options.cpu, reference, weights: sha256('other weights') } };
    await expect(verifyAttestation(text, other)).rejects.toMatchObject({ code: 'weights_mismatch' });
  });
});

const ask = (port: number) =>
  fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${API_KEY}` },
    body: JSON.stringify(REQUEST),
    signal: AbortSignal.timeout(120_000),
  }).catch(() => null);

function composeFor({ images }: Service, root: string): string {
  const socket = (read_only: boolean) => ({ type: 'volume', source: 'socket', target: '/run/countersign', read_only });
  const memory = {
    driver: 'local',
    driver_opts: { type: 'tmpfs', device: 'tmpfs', o: 'size=64k,nr_inodes=16,mode=0700' },
  };
  return composeOf(
    {
      backend: {
        image: images.backend,
        command: ['/weights'],
        networks: { inside: null },
        volumes: [{ type: 'bind', source: `/run/weights/${root}`, target: '/weights', read_only: true }],
      },
      sidecar: {
        image: images.sidecar,
        environment: { CPU_EVIDENCE: 'required', LAUNCH_FILE },
        networks: { attestation: null },
        volumes: [
          socket(false),
          { type: 'volume', source: 'sidecar-state', target: '/var/lib/countersign' },
          { type: 'bind', source: LAUNCH_FILE, target: LAUNCH_FILE, read_only: true },
        ],
      },
      gateway: {
        image: images.gateway,
        environment: { BACKEND_URL: 'http://backend:8000/v1', CANARY_EXPECT: '*' },
        networks: { inside: null, outside: null },
        ports: [{ mode: 'ingress', target: 8080, published: '8080', protocol: 'tcp' }],
        volumes: [socket(true)],
      },
    },
    { socket: memory, 'sidecar-state': {} },
  );
}

// @countersign/verify from an empty folder: what it consists of, how it is typed, and that every runtime gives every vector its verdict.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { MAX_GZIPPED_BYTES, MAX_SEALED_GZIPPED_BYTES, SEALING, weigh } from '../../scripts/build-package.ts';
import { inputOf, type Vector, type VectorOptions } from '../../scripts/vectors/vector.ts';
import { ask, CHAT } from '../support/client.ts';
import { eventually, type Folder, freePort, type Service, startService, temporaryFolder } from '../support/harness.ts';
import { startCommand } from '../support/process.ts';
import { currentKeys } from '../support/sealed-client.ts';
import { vector, vectorsPresent } from '../support/vectors.ts';
import { installPackage, run } from './installed.ts';

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));
const installed = installPackage();
const missing = installed === null ? ', SKIPPED: npm cannot be reached' : '';

/** A case as data that any runtime takes: files are read here. */
function portable(name: string) {
  const one = JSON.parse(readFileSync(join(VECTORS, 'cases', name), 'utf8')) as Vector;
  const text = (file: string) => readFileSync(join(VECTORS, file), 'utf8');
  const { simulated_root_file, rim_root_file, rim_files, ocsp_files, bundle_files, ...rest }: VectorOptions =
    one.options;
  const options = {
    ...rest,
    simulatedRoot: simulated_root_file && text(simulated_root_file),
    rimRoot: rim_root_file && text(rim_root_file),
    rims: Object.entries(rim_files ?? {}).map(([id, file]) => [id, text(file)]),
    ocsp: (ocsp_files ?? []).map(text),
    bundles: Object.entries(bundle_files ?? {}).map(([sha256, file]) => [sha256, text(file)]),
  };
  const { valid, level, code } = one.expect;
  return {
    name,
    evidence: one.evidence !== undefined,
    input: inputOf(VECTORS, one),
    options,
    expected: valid ? level : code,
  };
}

/** One line for each case whose verdict is another than it should be, then how many were right. */
const PROGRAM = `
import { appraiseAttestation, appraiseEvidence, createBundles } from '@countersign/verify';
import { createCollateral } from '@countersign/verify/nvidia';
import cases from './cases.js';

const bytes = (text) => Uint8Array.from(atob(text.replace(/\\s/g, '')), (one) => one.charCodeAt(0));
export async function verdicts() {
  const wrong = [];
  for (const { name, evidence, input, options, expected } of cases) {
    const { transcript, ...texts } = options.expected ?? {};
    const { without = {} } = options;
    const report = await (evidence ? appraiseEvidence : appraiseAttestation)(input, {
      at: new Date(options.at),
      simulatedRoot: options.simulatedRoot,
      roots: options.rimRoot === undefined ? {} : { rim: options.rimRoot },
      collateral: createCollateral({ rims: new Map(options.rims), ocsp: options.ocsp.map(bytes) }),
      bundles: createBundles({ load: async (sha256) => new Map(options.bundles).get(sha256) ?? null }),
      nrasKeys: options.nras_keys,
      expected: { ...texts, ...(transcript === undefined ? {} : { transcript: new TextEncoder().encode(transcript) }) },
      without: { referenceValues: without.reference_values, revocation: without.revocation },
      policy: { maxAgeSeconds: options.max_age_seconds, maxBatch: options.max_batch, requiredChecks: options.required_checks },
      cpu: options.cpu,
      limits: { maxCharacters: options.max_characters },
    });
    const found = report.valid ? report.level : report.checks.find(({ status }) => status === 'fail').code;
    if (found !== expected) wrong.push(name + ': ' + found + ' in place of ' + expected);
  }
  return [...wrong, cases.length - wrong.length + ' of ' + cases.length].join('\\n');
}
`;

/** An answer of a service that takes sealed requests alone, and its level. */
const SEALING_PROGRAM = `
import { verifyingFetch } from '@countersign/verify/fetch';
import { sealedFetch } from '@countersign/verify/sealed';
import where from './where.js';
export async function sealed() {
  const { url, simulatedRoot } = where;
  let level = '';
  const options = { simulatedRoot, policy: { minLevel: 'none' } };
  const carrier = sealedFetch({ ...options, url });
  const send = verifyingFetch({ ...options, fetch: carrier, onVerified: (verified) => { level = verified.level; } });
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] });
  const response = await send(url + '/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const { choices, error } = await response.json();
  return (error?.code ?? choices[0].message.content) + ' ' + level;
}
`;

describe.skipIf(installed === null)(`@countersign/verify${missing}`, () => {
  if (installed === null) return;
  const { folder, tools, tarball } = installed;
  afterAll(() => installed.remove());
  const cases = readdirSync(join(VECTORS, 'cases')).map(portable);
  const all = `${cases.length} of ${cases.length}`;
  installed.write('cases.js', `export default ${JSON.stringify(cases)};`);
  installed.write('verdicts.js', PROGRAM);
  installed.write('main.js', "import { verdicts } from './verdicts.js';\nconsole.log(await verdicts());\n");
  const node = (major: number) => join(tools, `node-${major}/bin/node`);
  const bin = join(folder, 'node_modules/.bin/countersign');

  it('brings one other package along, for what seals, and no source but in its maps', () => {
    const others = readdirSync(join(folder, 'node_modules')).filter((name) => !name.startsWith('.'));
    expect(others).toEqual(['@countersign', 'hpke']);
    expect(readdirSync(join(folder, 'node_modules/@countersign'))).toEqual(['verify']);
    const files = readdirSync(join(folder, 'node_modules/@countersign/verify'), { recursive: true, encoding: 'utf8' });
    const kinds = new Set(
      files.filter((name) => /\.\w+$/.test(name)).map((name) => name.replace(/^.*?((\.d)?\.\w+(\.map)?)$/, '$1')),
    );
    expect([...kinds].sort()).toEqual(['.1', '.d.ts', '.js', '.js.map', '.json', '.md']);
    expect(files.filter((name) => /vectors|\btest/.test(name))).toEqual([]);
  });

  it('is right for publint, and its types for @arethetypeswrong/cli', async () => {
    const publint = await run(node(22), [join(tools, 'publint/src/cli.js'), tarball, '--strict'], folder);
    expect(publint.code, publint.output).toBe(0);
    expect(publint.output).toContain('All good!');
    // It is ESM alone, for which require() and TypeScript's oldest resolution are not meant.
    const arguments_ = [tarball, '--profile', 'esm-only', '--no-color', '--no-emoji'];
    const attw = await run(node(22), [join(tools, '@arethetypeswrong/cli/dist/index.js'), ...arguments_], folder);
    expect(attw.code, attw.output).toBe(0);
    expect(attw.output.match(/node16 \(from ESM\): OK/g)).toHaveLength(10);
  });

  const CONSUMER = `
    import { verifyAttestation, VerificationError, type Verified, type FailureCode } from '@countersign/verify';
    import { verifyCpu } from '@countersign/verify/cpu';
    import { UnprovenAnswerError, verifyingFetch } from '@countersign/verify/fetch';
    import { createCollateral } from '@countersign/verify/nvidia';
    import { SealedFetchError, type SealedSession, sealedFetch } from '@countersign/verify/sealed';
    import { transcriptFile } from '@countersign/verify/transcript';
    export const kept = verifyingFetch({ transcript: transcriptFile('run.jsonl', { maxBytes: 1024 }) });
    const fetched = verifyingFetch({ strict: true, collateral: createCollateral({ fetch }), onVerified: ({ level }) => level });
    export const send: typeof globalThis.fetch = fetched;
    export async function one(text: string): Promise<Verified> {
      const verified = await verifyAttestation(text, { policy: { minLevel: 'gpu' }, expected: { request: '{}' } });
      const devices: readonly string[] = verified.claims.devices.map(({ model }) => model);
      return devices.length > 0 && verified.exchange.request !== '' ? verified : one('');
    }
    export const code = (error: unknown): FailureCode | string | null =>
      error instanceof VerificationError || error instanceof UnprovenAnswerError ? error.code : null;
    export const refusals: SealedFetchError[] = [];
    export const sealed: typeof globalThis.fetch = sealedFetch({
      url: 'https://gateway.example',
      policy: { minLevel: 'gpu+cpu' },
      onSession: ({ level, report }: SealedSession) => report.proven.concat(level),
      onRefused: (error) => void refusals.push(error),
    });
    // @ts-expect-error no gateway
    void sealedFetch({});
    export const cpu = verifyCpu('', { policy: { products: ['Genoa'] } });
    // @ts-expect-error no such level
    void verifyAttestation('', { policy: { minLevel: 'high' } });
    // @ts-expect-error not exported
    import { parseToken } from '@countersign/verify';
    void parseToken;
  `;
  it.each([
    ['node16', 'node16', 'ES2022', '["node"]'],
    ['nodenext', 'nodenext', 'ES2022', '["node"]'],
    ['esnext', 'bundler', 'ES2022,DOM', '[]'],
  ])(
    'is typed for TypeScript 5.9, --module %s --moduleResolution %s, strict',
    async (module, resolution, lib, types) => {
      installed.write('consumer.ts', CONSUMER);
      installed.write(
        'tsconfig.json',
        JSON.stringify({
          compilerOptions: {
            module,
            moduleResolution: resolution,
            lib: lib.split(','),
            target: 'ES2022',
            strict: true,
            noEmit: true,
            exactOptionalPropertyTypes: true,
            types: JSON.parse(types),
            typeRoots: [join(tools, '@types')],
          },
          files: ['consumer.ts'],
        }),
      );
      const { code, output } = await run(node(22), [join(tools, 'typescript/bin/tsc'), '-p', folder], folder);
      expect([code, output]).toEqual([0, '']);
    },
  );

  it.each([20, 22, 24])('gives every vector its verdict on Node %i', async (major) => {
    expect(await run(node(major), ['main.js'], folder)).toEqual({ code: 0, output: `${all}\n` });
  });

  it('gives every vector its verdict on Deno, with no permission', async () => {
    const deno = join(tools, '@deno/linux-x64-glibc/deno');
    const ran = await run(
      deno,
      ['run', '--no-prompt', '--cached-only', '--node-modules-dir=manual', 'main.js'],
      folder,
      { NO_COLOR: '1' },
    );
    expect(ran).toEqual({ code: 0, output: `${all}\n` });
  });

  it('gives every vector its verdict on Bun', async () => {
    const ran = await run(join(tools, '@oven/bun-linux-x64/bin/bun'), ['run', 'main.js'], folder);
    expect(ran).toEqual({ code: 0, output: `${all}\n` });
  });

  it('gives every vector its verdict in a Worker', async () => {
    installed.write(
      'worker.js',
      "import { verdicts } from './verdicts.js';\nexport default { fetch: async () => new Response(await verdicts()) };\n",
    );
    const { outputFiles } = await build({
      entryPoints: [join(folder, 'worker.js')],
      bundle: true,
      format: 'esm',
      platform: 'browser',
      target: 'es2022',
      write: false,
    });
    installed.write('bundled.js', outputFiles[0]?.text ?? '');
    const port = await freePort();
    installed.write(
      'worker.capnp',
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .verifier)],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const verifier :Workerd.Worker = (modules = [(name = "bundled.js", esModule = embed "bundled.js")], compatibilityDate = "2025-09-01");
`,
    );
    const workerd = startCommand(
      join(tools, '@cloudflare/workerd-linux-64/bin/workerd'),
      ['serve', 'worker.capnp'],
      {},
      folder,
    );
    try {
      expect(await answerOf(`http://127.0.0.1:${port}/`)).toBe(all);
    } finally {
      await workerd.kill('SIGKILL');
    }
  });

  describe('seals', () => {
    let service: Service;
    let cpuFolder: Folder;
    let roots: string;
    beforeAll(async () => {
      cpuFolder = temporaryFolder();
      const collector = await createSimulatedCpu({ type: 'TDX', rootDir: cpuFolder.path });
      service = await startService({ SEALED: 'required' }, { cpu: { collector, required: true } });
      await currentKeys(service.gateway.url);
      roots = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
      const where = { url: service.gateway.url, simulatedRoot: roots };
      installed.write('where.js', `export default ${JSON.stringify(where)};`);
      installed.write('seal.js', SEALING_PROGRAM);
      installed.write('sealed.js', "import { sealed } from './seal.js';\nconsole.log(await sealed());\n");
    });
    afterAll(async () => {
      await service.close();
      cpuFolder.remove();
    });
    const HELLO = { code: 0, output: 'Hello. none\n' };

    it.each([20, 22, 24])('on Node %i', async (major) => {
      expect(await run(node(major), ['--no-warnings', 'sealed.js'], folder)).toEqual(HELLO);
    });

    it('for clients that take a URL alone, by countersign proxy on Node 20', async () => {
      const { url } = service.gateway;
      const root = installed.write('roots.pem', roots);
      const args = ['proxy', '--gateway', url, '--port', '0', '--allow-simulated', root, '--min-level', 'none'];
      const proxy = startCommand(node(20), [join(folder, 'node_modules/.bin/countersign'), ...args, '--offline']);
      try {
        await eventually(() => proxy.output().includes('API key') || proxy.child.exitCode !== null);
        const [, baseURL = '', key = ''] = /^base URL {2}(\S+)\nAPI key {3}(\S+)$/m.exec(proxy.output()) ?? [];
        const headers = { authorization: `Bearer ${key}` };
        const { json } = await ask(`${baseURL}/chat/completions`, { headers, body: JSON.stringify(CHAT) });
        expect(json()).toMatchObject({ choices: [{ message: { content: 'Hello.' } }], attestation: {} });
      } finally {
        await proxy.kill('SIGKILL');
      }
    });

    it('on Deno, with the permission to use the network', async () => {
      const deno = join(tools, '@deno/linux-x64-glibc/deno');
      const args = ['run', '--no-prompt', '--cached-only', '--allow-net=127.0.0.1', '--node-modules-dir=manual'];
      expect(await run(deno, [...args, 'sealed.js'], folder, { NO_COLOR: '1' })).toEqual(HELLO);
    });

    it('on Bun', async () => {
      expect(await run(join(tools, '@oven/bun-linux-x64/bin/bun'), ['run', 'sealed.js'], folder)).toEqual(HELLO);
    });
  });

  it('loads what seals where it is asked for alone', async () => {
    const { metafile } = await build({
      stdin: { contents: "export * from '@countersign/verify/fetch';", resolveDir: folder },
      bundle: true,
      format: 'esm',
      platform: 'browser',
      metafile: true,
      write: false,
    });
    const inputs = Object.keys(metafile.inputs);
    expect(inputs.filter((name) => /hpke|dist\/sealed\//.test(name))).toEqual([]);
    expect(inputs.length).toBeGreaterThan(10);
  });

  it('weighs what a page may load', async () => {
    const { first, later } = await weigh();
    console.log(
      `a page loads ${first} bytes gzipped to verify an attestation, ${later} more for a processor's evidence`,
    );
    expect(first).toBeLessThanOrEqual(MAX_GZIPPED_BYTES);
    const sealing = await weigh(SEALING);
    console.log(`./fetch and ./sealed together are ${sealing.first + sealing.later} bytes gzipped`);
    expect(sealing.first + sealing.later).toBeLessThanOrEqual(MAX_SEALED_GZIPPED_BYTES);
  });

  it('has the command line, on the oldest Node too', async () => {
    const right = cases.find(({ name }) => name === 'form.pass.response-text.json');
    const answer = installed.write('answer.json', String(right?.input));
    const root = installed.write('root.pem', right?.options.simulatedRoot ?? '');
    const at = right?.options.at ?? '';
    const env = { PATH: `${join(node(20), '..')}:${process.env.PATH}` };
    const good = await run(bin, [answer, '--allow-simulated', root, '--at', at, '--offline'], folder, env);
    expect([good.code, good.output]).toEqual([0, expect.stringContaining('VALID (level: none)')]);
    const bad = await run(bin, ['verify', answer, '--at', at, '--offline'], folder, env);
    expect([bad.code, bad.output]).toEqual([1, expect.stringContaining('--allow-simulated')]);
    expect((await run(bin, ['--version'], folder, env)).output).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(await run(bin, ['doctor'], folder, env)).toMatchObject({
      code: 2,
      output: expect.stringContaining('belongs to the service'),
    });
  });

  it.skipIf(!vectorsPresent)(
    'verifies a genuine H100, and says incomplete where reference values are missing',
    async () => {
      const [device] = JSON.parse(vector('nvidia/h100-590.12/evidence.json').toString());
      const evidence = installed.write('evidence.json', JSON.stringify([device]));
      const without = ['--without-reference-values', '--without-revocation'];
      expect(await run(bin, ['evidence', evidence, '--offline', ...without], folder)).toMatchObject({
        code: 0,
        output: expect.stringContaining('PASSED: evidence of devices, about no answer (level: gpu)'),
      });
      expect(await run(bin, ['evidence', evidence, '--offline'], folder)).toMatchObject({
        code: 3,
        output: expect.stringContaining('INCOMPLETE'),
      });
    },
  );

  it('completes in bash, and its man page is one', async () => {
    const script = (await run(bin, ['completion', 'bash'], folder)).output;
    installed.write('completion.bash', script);
    const asked =
      'source completion.bash; COMP_WORDS=(countersign verify --req); COMP_CWORD=2; _countersign; printf "%s\\n" $COMPREPLY';
    expect((await run('bash', ['-c', asked], folder)).output).toBe('--request\n');
    const page = join(folder, 'node_modules/@countersign/verify/man/countersign.1');
    const text = readFileSync(page, 'utf8');
    expect(text).toMatch(/^\.TH COUNTERSIGN 1 /);
    expect(text).toContain('\\-\\-require\\-level');
  });
});

/** As soon as there is one. */
async function answerOf(url: string): Promise<string> {
  for (let i = 0; ; i++) {
    const answer = await fetch(url).catch(() => null);
    if (answer !== null) return answer.text();
    if (i === 100) throw new Error(`${url} cannot be reached`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// `npm run fuzz`: every parser, 200,000 inputs, and 20,000 streams through the clients' decoders. `npm run fuzz gateway`: the whole gateway,
// 1,400 TLS handshakes and 100,000 requests. `npm run fuzz schema`: schemathesis over its OpenAPI document. `npm run fuzz shown`: what SDKs
// show of 20,000 streams.
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const VITEST = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url));
const tests = (project: string, path: string, ...more: string[]) => [
  VITEST,
  'run',
  '--project',
  project,
  path,
  ...more,
];

interface Run {
  readonly env: Readonly<Record<string, string>>;
  readonly parameters: readonly string[];
}

const [what = 'parsers', ...rest] = process.argv.slice(2);
const RUNS: Readonly<Record<string, readonly Run[]>> = {
  parsers: [
    { env: { FUZZ_INPUTS: '200000' }, parameters: tests('long', 'test/verify/fuzz/fuzz.long.ts') },
    { env: { FUZZ_STREAMS: '20000' }, parameters: tests('clients', 'test/decoders', '--silent=true') },
    { env: { FUZZ_STREAMS: '20000' }, parameters: tests('python', 'test/decoders', '--silent=true') },
    { env: { FUZZ_STREAMS: '20000' }, parameters: tests('browser', 'test/decoders') },
  ],
  gateway: [
    { env: { FUZZ_HANDSHAKES: '1400' }, parameters: tests('unit', 'test/fuzz/handshakes.test.ts') },
    { env: { FUZZ_REQUESTS: '100000' }, parameters: tests('unit', 'test/fuzz/gateway.test.ts') },
  ],
  shown: [
    {
      env: { FUZZ_STREAMS: '20000', FUZZ_SEED: process.env.FUZZ_SEED ?? String(randomInt(2 ** 31)) },
      parameters: tests('unit', 'test/shown/random.test.ts', '--silent=true'),
    },
  ],
  schema: [{ env: {}, parameters: [fileURLToPath(new URL('schema.ts', import.meta.url)), ...rest] }],
};

const runs = RUNS[what];
if (runs === undefined) {
  console.error(`usage: npm run fuzz ${Object.keys(RUNS).join('|')}`);
  process.exit(2);
}
for (const { env, parameters } of runs) {
  const options = { cwd: ROOT, stdio: 'inherit', env: { ...process.env, ...env } } as const;
  const { status } = spawnSync(process.execPath, parameters, options);
  if (status !== 0) process.exit(status ?? 1);
}

// The examples that need nothing but `npm ci`, each run as its first lines say, against the demo's parts.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { vectorsPresent } from '../support/vectors.ts';
import { h100, h100Rims } from '../verify/gpu/genuine.ts';
import { nonces, ROOT, run } from './run.ts';
import { type Service, startService } from './service.ts';

const curl = spawnSync('curl', ['--version']).status === 0;
if (!curl) console.warn('\n!!! examples/curl.sh is SKIPPED: there is no curl !!!\n');

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

const node = (...args: string[]) => run([process.execPath, ...args], service.demo);

// Each starts a Node of its own, which takes a busy machine seconds.
describe.concurrent('examples', { timeout: 90_000 }, () => {
  it('openai-chat.ts: two answers, each with a nonce that verifies', async () => {
    const ran = await node('examples/openai-chat.ts');
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output).toMatch(/^whole: .*\S/);
    expect(ran.output).toMatch(/^stream: .*\S/m);
    expect(nonces(ran.output)).toHaveLength(2);
    expect(ran.output.match(/verified by the gateway: true/g)).toHaveLength(2);
  });

  it('ai-sdk-chat.ts: two answers, each with a nonce', async () => {
    const ran = await node('examples/ai-sdk-chat.ts');
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(nonces(ran.output)).toHaveLength(2);
  });

  it('verifying-fetch.ts: two proofs under the named root, and none without it', async () => {
    const ran = await node('examples/verifying-fetch.ts', service.root);
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output.match(/^proof of level none: .*simulated device/gm)).toHaveLength(2);
    const refused = await node('examples/verifying-fetch.ts');
    expect(refused.code).not.toBe(0);
    expect(refused.errors).toContain('simulated_root_refused');
    expect(refused.output).toBe('');
  });

  it.skipIf(!curl)(
    `curl.sh${curl ? '' : ' SKIPPED: there is no curl'}: true for each proof, and the failed check for the one that was changed`,
    async () => {
      const ran = await run(['sh', 'examples/curl.sh'], service.demo);
      expect([ran.code, ran.errors]).toEqual([0, '']);
      const lines = ran.output.split('\n');
      expect(lines.filter((line) => line === 'true')).toHaveLength(2);
      expect(lines).toContain('data: [DONE]');
      expect(lines.at(-2)).toContain('"code":"raw_hash_mismatch"');
    },
  );

  it('offline-audit.ts: a stored attestation passes offline, and fails when a byte of it changes', async () => {
    const stored = join(service.folder, 'stored.json');
    const collateral = join(service.folder, 'collateral');
    for (const name of ['rim', 'ocsp']) mkdirSync(join(collateral, name), { recursive: true });
    const text = await attested(service);
    writeFileSync(stored, text);
    const audit = ['examples/offline-audit.ts', stored, collateral, '--simulated', service.root];
    const ran = await run([process.execPath, ...audit]);
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output).toContain('\nVALID\n');
    expect(ran.output).toContain('the request that was signed: {"model":"countersign-demo"');
    writeFileSync(stored, text.replace('Hello', 'Jello'));
    const changed = await run([process.execPath, ...audit]);
    expect([changed.code, changed.errors]).toEqual([1, '']);
    expect(changed.output).toContain('INVALID: raw_hash_mismatch');
  });

  it('offline-audit.sh: the same by the command line', async () => {
    const stored = join(service.folder, 'stored-for-cli.json');
    const text = await attested(service);
    writeFileSync(stored, text);
    const audit = ['sh', 'examples/offline-audit.sh', stored, '--allow-simulated', service.root];
    const ran = await run(audit);
    expect(ran.code, ran.errors).toBe(0);
    expect(ran.output).toMatch(/^VALID/m);
    writeFileSync(stored, text.replace('Hello', 'Jello'));
    const changed = await run(audit);
    expect(changed.code, changed.errors).toBe(1);
    expect(changed.output).toContain('raw_hash_mismatch');
  });

  it.skipIf(!vectorsPresent)('offline-audit.sh asks again when the network was away the first time', async () => {
    const stored = join(service.folder, 'stored-while-away.json');
    const { arch, evidence: report, certificate: certificate_chain } = h100();
    const raw = '{"request":{},"response":{},"timestamp":0}';
    const nonce = createHash('sha256').update(raw).digest('hex');
    writeFileSync(stored, JSON.stringify({ raw, nonce, token: '-', evidence: [{ arch, report, certificate_chain }] }));
    const nowhere = ['--rim-url', 'http://127.0.0.1:9/', '--ocsp-url', 'http://127.0.0.1:9/'];
    for (const _ of ['first', 'second']) {
      const ran = await run(['sh', 'examples/offline-audit.sh', stored, ...nowhere]);
      expect([ran.code, ran.errors]).toEqual([1, expect.stringContaining('fetching http://127.0.0.1:9/')]);
    }
  });

  it.skipIf(!vectorsPresent)('the same command, with the collateral of a genuine H100', async () => {
    const collateral = join(service.folder, 'h100.collateral');
    for (const name of ['rim', 'ocsp']) mkdirSync(join(collateral, name), { recursive: true });
    for (const [id, rim] of h100Rims()) writeFileSync(join(collateral, 'rim', `${id}.xml`), rim);
    const evidence = join(service.folder, 'h100.json');
    writeFileSync(evidence, JSON.stringify([h100()]));
    const cli = [process.execPath, 'auditor/main.ts', 'evidence', evidence, '--offline'];
    // Its OCSP answers and its reference values were never valid at one time.
    const given = ['--collateral', collateral, '--at', '2025-09-01T00:00:00Z', '--without-revocation'];
    const ran = await run([...cli, ...given]);
    expect(ran.code, ran.errors).toBe(0);
    expect(ran.output).toContain('PASSED: evidence of devices, about no answer (level: gpu)');
    expect((await run([...cli, ...given.slice(2)])).output).toContain('rim_unavailable');
  });
});

it('the table of examples names every file of the folder', () => {
  const folder = join(ROOT, 'examples');
  const table = readFileSync(join(folder, 'README.md'), 'utf8');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => !/node_modules|__pycache__|(^|\/)(README\.md|package(-lock)?\.json)$/.test(name))
    .filter((name) => /\.\w+$/.test(name))
    .map((name) => name.replace('agents/', ''));
  expect(files.length).toBeGreaterThan(15);
  for (const file of files) expect(table).toContain(file);
});

/** A whole answer with its attestation, as `curl … > stored.json` keeps it. */
async function attested({ demo }: Service): Promise<string> {
  const response = await fetch(`${demo.OPENAI_BASE_URL}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${demo.OPENAI_API_KEY}`, 'content-type': 'application/json' },
    body: '{"model":"countersign-demo","messages":[{"role":"user","content":"Hello"}],"max_tokens":20,"tee":true}',
  });
  return response.text();
}

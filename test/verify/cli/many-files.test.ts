// Compact attestations on the command line: `expand`, and `verify` over a folder or a file of lines.
import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { commandLine } from '../../support/cli.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { AT, attestInBatch, RESPONSE, simulatedRoot, streamed, transcript } from '../maker.ts';

const CLI = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
const run = commandLine();
let base: Folder;
let folder: string;
let number = 0;

interface Compact {
  readonly whole: Record<string, unknown>;
  readonly text: string;
  readonly bundle: string;
  readonly sha256: string;
}

function compactOf(whole: Awaited<ReturnType<typeof attestInBatch>>): Compact {
  const { token, evidence, ...own } = whole;
  const bundle = JSON.stringify({ token, evidence });
  const sha256 = hash('sha256', bundle);
  return { whole: { ...whole }, text: JSON.stringify({ ...own, bundle: sha256 }), bundle, sha256 };
}

const made = async () => compactOf(await attestInBatch(2, 0));

function put(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const flags = () => [
  ...['--allow-simulated', join(base.path, 'root.pem'), '--at', AT.toISOString(), '--offline'],
  ...['--without-revocation', '--without-reference-values'],
];

beforeAll(() => {
  base = temporaryFolder();
  writeFileSync(join(base.path, 'root.pem'), simulatedRoot);
});
beforeEach(() => {
  folder = join(base.path, String(++number));
  mkdirSync(folder);
});
afterAll(() => base.remove());

describe('countersign expand', () => {
  it('makes an attestation, an answer and a stream whole, each of which then stands for itself', async () => {
    const { text, bundle, whole } = await made();
    const answer = withLastMember(RESPONSE, 'attestation', text);
    const stream = compactOf(await attestInBatch(2, 0, await streamed()));
    const held = put('bundle.json', bundle);
    const ofStream = put('bundle-of-stream.json', stream.bundle);
    for (const [file, bundles, expected] of [
      [put('alone.json', text), held, JSON.stringify(whole)],
      [put('answer.json', `${answer}\n`), held, withLastMember(RESPONSE, 'attestation', JSON.stringify(whole))],
      [put('stream.txt', transcript(JSON.parse(stream.text))), ofStream, transcript(stream.whole as never)],
    ] as const) {
      const { status, stdout, stderr } = run('expand', file, '--bundle', bundles);
      expect([status, stderr]).toEqual([0, '']);
      if (typeof expected === 'string') expect(JSON.parse(stdout)).toEqual(JSON.parse(expected));
      const saved = put('whole', stdout);
      expect(run('verify', saved, ...flags()).stdout).toMatch(/VALID \(level: none\)\n$/);
      expect(run('expand', saved).stdout).toBe(stdout);
    }
  });

  it('asks a service that is named, and says what it could not have or what is wrong', async () => {
    const { text, bundle, sha256 } = await made();
    let served: string | null = bundle;
    const paths: (string | undefined)[] = [];
    const server = createServer(({ url }, response) => {
      paths.push(url);
      response.writeHead(served === null ? 404 : 200).end(served ?? '');
    });
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    const { port } = server.address() as AddressInfo;
    const args = [CLI, 'expand', put('compact.json', text), '--url', `http://127.0.0.1:${port}/v1`];
    const expand = () =>
      promisify(execFile)(process.execPath, args).then(
        ({ stdout }) => [0, stdout],
        ({ code, stderr }) => [code, stderr],
      );
    try {
      served = null;
      expect(await expand()).toEqual([3, expect.stringContaining('bundle_unavailable')]);
      served = `${bundle} `;
      expect(await expand()).toEqual([1, expect.stringContaining('bundle_mismatch')]);
      served = bundle;
      expect(await expand()).toEqual([0, expect.stringContaining('"evidence"')]);
      expect(paths).toEqual(Array(3).fill(`/v1/attestation/bundles/${sha256}`));
    } finally {
      server.close();
    }
  });
});

const rows = (stdout: string) =>
  stdout
    .split('\n\n')[0]
    ?.split('\n')
    .map((line) => line.replaceAll(`${base.path}/`, '').split(/ {2,}/))
    .sort();

describe('countersign verify', () => {
  it('over a folder has a line for each answer, finds bundles that are in it, and counts', async () => {
    const [a, b, c] = await Promise.all([made(), made(), made()]);
    mkdirSync(join(folder, 'day'));
    for (const [name, content] of [
      ['a.json', a.text],
      [`${a.sha256}.json`, a.bundle],
      ['day/b.json', withLastMember(RESPONSE, 'attestation', b.text)],
      ['day/of-b', b.bundle],
      ['whole.json', JSON.stringify(c.whole)],
      ['.hidden', 'x'],
    ] as const)
      put(name, content);
    const verify = (...more: string[]) => run('verify', folder, ...flags(), ...more);
    expect(verify('--quiet')).toEqual({ status: 0, stdout: '', stderr: '' });
    const good = verify();
    expect(rows(good.stdout)).toEqual([
      ['VALID', 'none', '-', `${number}/a.json`],
      ['VALID', 'none', '-', `${number}/day/b.json`],
      ['VALID', 'none', '-', `${number}/whole.json`],
    ]);
    const counts = '3 answers: 3 valid (level: 3 none), 0 invalid, 0 incomplete; 2 bundles beside them\n';
    expect(good).toMatchObject({ status: 0, stderr: '', stdout: expect.stringContaining(`\n\n${counts}`) });
    put('c.json', c.text);
    expect(verify()).toMatchObject({ status: 3, stdout: expect.stringContaining('INCOMPLETE  none      bundle_un') });
    put('d.json', Uint8Array.of(0xff, 0xfe, 0));
    put('e.json', a.text.replace('Hello.', 'Hullo.'));
    const bad = verify();
    expect(bad.status).toBe(1);
    for (const row of [`unreadable  ${folder}/d.json`, `batch_proof_invalid  ${folder}/e.json`])
      expect(bad.stdout).toContain(`INVALID     none      ${row}`);
    expect(bad.stdout).toContain('3 valid (level: 3 none), 2 invalid, 1 incomplete');
  });

  it('over lines has them in their order, with bundles among the lines or in --bundle', async () => {
    const many = await Promise.all(Array.from({ length: 40 }, made));
    const [first, ...rest] = many as [Compact, ...Compact[]];
    mkdirSync(join(folder, 'bundles'));
    for (const { sha256, bundle } of rest) put(`bundles/${sha256}.json`, bundle);
    const lines = [first.bundle, '', first.text, 'no JSON', ...rest.map(({ text }) => text)];
    const file = put('answers.jsonl', lines.join('\n'));
    const { status, stdout } = run('verify', file, ...flags(), '--json', '--bundle', join(folder, 'bundles'));
    const reports = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(status).toBe(1);
    expect(reports.map(({ file: name, valid }) => [Number(name.split(':').at(-1)), valid])).toEqual(
      lines.flatMap((line, i) => (i < 2 ? [] : [[i + 1, line !== 'no JSON']])),
    );
    expect(reports[0]).toMatchObject({ level: 'none', claims: { batch: { tree_size: 2 } } });
  });

  it('refuses options that are about one answer, an empty folder and a file that is away', async () => {
    const { whole } = await made();
    for (const [args, message] of [
      [[folder], 'no answer is in it'],
      [[folder, '--request', 'x'], '--request is about one answer'],
      [[folder, '--reference', 'gone'], 'gone: no such file'],
      [[join(folder, 'gone.jsonl')], 'no such file'],
    ] as const)
      expect(run('verify', ...args, ...flags())).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(message),
      });
    put('whole.json', JSON.stringify(whole));
    expect(run('verify', folder, ...flags()).status).toBe(0);
    expect(readFileSync(join(folder, 'whole.json'), 'utf8')).toBe(JSON.stringify(whole));
  });
});

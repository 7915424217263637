import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ConfigError } from '../../../gateway/base/config.ts';
import { type AuditLog, type AuditState, auditLogOf, lineHash, NO_LINE } from '../../../gateway/usage/audit-log.ts';
import { answer, chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, type Folder, SILENT, temporaryFolder } from '../../support/harness.ts';
import { bearer, type Stage, startStage } from '../limits/limits-stage.ts';

type AuditEntry = Parameters<AuditLog['add']>[0];

const BIN = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
let folder: Folder;
let file: string;
let open: AuditLog[] = [];

beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, 'audit.log');
});
afterEach(() => {
  for (const log of open.splice(0)) log.close();
  folder.remove();
});

const ENTRY: AuditEntry = {
  id: 'req-1',
  key: 'a',
  endpoint: '/v1/chat/completions',
  model: 'm',
  status: 200,
  input_tokens: 3,
  output_tokens: 2,
  tokens: 'backend',
};
function start(options: { max_bytes?: number; max_files?: number } = {}): AuditLog {
  const { max_bytes = 64 * 1024 * 1024, max_files = 0 } = options;
  const settings = { audit_log: file, audit_log_bytes: max_bytes, audit_log_files: max_files };
  const log = auditLogOf(settings, SILENT) as AuditLog;
  open.push(log);
  return log;
}
function stop(log: AuditLog): void {
  log.close();
  open = open.filter((one) => one !== log);
}
const stateOf = (log: AuditLog) => log.state() as AuditState;
const linesOf = (name = file) => readFileSync(name, 'utf8').split('\n').slice(0, -1);
const check = (...args: string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [BIN, 'audit-log', 'check', ...args], {
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
};

/** A log of `count` lines. */
function written(count: number): void {
  const log = start();
  for (let i = 0; i < count; i++) log.add({ ...ENTRY, id: `req-${i}` });
  stop(log);
}

describe('the audit log', () => {
  it('numbers its lines, and each holds the hash of the one before', () => {
    written(3);
    const lines = linesOf();
    const parsed = lines.map((line) => JSON.parse(line));
    expect(parsed.map(({ seq, prev, id }) => [seq, prev, id])).toEqual([
      [1, NO_LINE, 'req-0'],
      [2, lineHash(lines[0] as string), 'req-1'],
      [3, lineHash(lines[1] as string), 'req-2'],
    ]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(check(file)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('UNBROKEN: lines 1 to 3 in 1 file.'),
    });
  });

  it('goes on where it ended, and removes a line that a crash cut off', () => {
    written(2);
    appendFileSync(file, '{"seq":3,"prev":"');
    const log = start();
    expect(stateOf(log).lines).toBe(2);
    log.add(ENTRY);
    stop(log);
    expect(linesOf()).toHaveLength(3);
    expect(check(file).status).toBe(0);
    // Nothing but a cut line.
    writeFileSync(file, '{"seq":1');
    stop(start());
    expect(readFileSync(file, 'utf8')).toBe('');
  });

  it('is rotated by its length, keeps so many files, and the chain goes through them', async () => {
    const log = start({ max_bytes: 2_000, max_files: 3 });
    for (let i = 1; i <= 60; i++) {
      log.add(ENTRY);
      if (i % 5 === 0) await eventually(() => lastOnDisk() === i);
    }
    stop(log);
    const names = readdirSync(folder.path).sort();
    expect(names.filter((name) => name !== 'audit.log')).toHaveLength(3);
    expect(names.every((name) => name === 'audit.log' || /^audit\.log\.\d{12}$/.test(name))).toBe(true);
    const { status, stdout } = check(file);
    expect(stdout).toMatch(
      /^UNBROKEN: lines \d+ to 60 in \d files\. The lines before \d+ are in none of these files\.\nhead 60:[0-9a-f]{64}\n$/,
    );
    expect(status).toBe(0);
    // A file from the middle is away; then the oldest as well, which nobody can see without the head of an earlier check.
    const rotated = names.filter((name) => name !== 'audit.log');
    rmSync(join(folder.path, rotated[1] as string));
    expect(check(file)).toMatchObject({ status: 1, stdout: expect.stringMatching(/\d+ lines before it are missing/) });
    rmSync(join(folder.path, rotated[0] as string));
    expect(check(file).status).toBe(0);
    // After a crash between the two steps of a rotation there is no file: the chain goes on.
    rmSync(file);
    const after = start();
    expect(stateOf(after).lines).toBeGreaterThan(0);
    after.add(ENTRY);
    stop(after);
    expect(check(file).status).toBe(0);
  });

  it('refuses a start where it cannot be written, or holds something else', () => {
    mkdirSync(join(folder.path, 'audit.log'));
    expect(() => start()).toThrow(ConfigError);
    rmSync(file, { recursive: true });
    for (const text of ['hello\n', '{"seq":"1"}\n', '{"seq":0}\n', `${'x'.repeat(70_000)}\n`]) {
      writeFileSync(file, text);
      expect(() => start(), text.slice(0, 20)).toThrow(/holds something else/);
      expect(readFileSync(file, 'utf8')).toBe(text);
    }
    file = join(folder.path, 'absent', 'audit.log');
    expect(() => start()).toThrow(/AUDIT_LOG cannot be written: ENOENT/);
  });

  // /dev/full takes nothing: ENOSPC at each write.
  it.skipIf(!existsSync('/dev/full'))(
    'says that it is failing while the disk takes nothing, and loses what finds no place',
    async () => {
      symlinkSync('/dev/full', file);
      const log = start();
      const big = { ...ENTRY, model: 'm'.repeat(10_000) };
      for (let i = 0; i < 1_000; i++) log.add(big);
      await eventually(() => stateOf(log).failing === 'ENOSPC');
      expect(stateOf(log).lost).toBeGreaterThan(0);
      stop(log);
    },
  );

  it('is whole at whatever moment it is closed, and holds each line once', () => {
    for (let round = 0; round < 20; round++) {
      const log = start({ max_bytes: 3_000 });
      for (let i = 0; i < 240; i++) log.add(ENTRY);
      stop(log);
    }
    expect(check(file)).toMatchObject({ status: 0, stdout: expect.stringContaining('lines 1 to 4800 in') });
  });

  it('goes on in the old file where a new one cannot be opened', async () => {
    const log = start({ max_bytes: 1_000 });
    for (let i = 0; i < 5; i++) log.add(ENTRY);
    // A folder stands where the rotated file is to be.
    mkdirSync(`${file}.000000000001`);
    writeFileSync(join(`${file}.000000000001`, 'x'), '');
    await eventually(() => stateOf(log).failing !== null);
    log.add(ENTRY);
    stop(log);
    rmSync(`${file}.000000000001`, { recursive: true });
    expect(check(file)).toMatchObject({ status: 0, stdout: expect.stringContaining('lines 1 to 6 in 1 file') });
  });

  it('holds no character that a write could divide', () => {
    const log = start();
    log.add({ ...ENTRY, model: 'Größe 模型 🙂' });
    stop(log);
    const [line = ''] = linesOf();
    expect(line).toMatch(/^[\x20-\x7e]+$/);
    expect(JSON.parse(line).model).toBe('Größe 模型 🙂');
  });
});

/** The number of the last line in the newest file that has one. */
function lastOnDisk(): number {
  const rotated = readdirSync(folder.path)
    .filter((name) => name !== 'audit.log')
    .sort()
    .map((name) => join(folder.path, name));
  const lines = [...rotated, file].filter((name) => existsSync(name)).flatMap((name) => linesOf(name));
  return JSON.parse(lines.at(-1) ?? '{"seq":0}').seq;
}

describe('countersign audit-log check', () => {
  const replaced = (at: number, change: (line: string) => string | null) =>
    writeFileSync(
      file,
      linesOf()
        .flatMap((line, i) => (i === at ? (change(line) ?? []) : line))
        .map((line) => `${line}\n`)
        .join(''),
    );
  const LATER = (line: string) => line.replace('"status":200', '"status":500');

  it.each([
    ['a line that was removed', 1, () => null, 'line 2: 1 lines before it are missing'],
    ['a line that was changed', 1, LATER, 'line 3: the line before it was changed'],
    ['a line twice', 1, (line: string) => `${line}\n${line}`, 'line 3: number 2 comes after number 2'],
    ['a line of something else', 1, () => 'hello', 'line 2: no line of an audit log'],
    [
      'a first line with a predecessor',
      0,
      (line: string) => line.replace(NO_LINE, 'a'.repeat(64)),
      'line 1: the first line names',
    ],
  ])('sees %s', (_name, at, change, message) => {
    written(4);
    replaced(at, change);
    const { status, stdout } = check(file);
    expect(stdout).toContain(message);
    expect(status).toBe(1);
    // A message quotes no line.
    expect(stdout).not.toContain('req-');
  });

  it('sees a line that was removed and its followers numbered anew', () => {
    written(4);
    const [first = '', , third = '', fourth = ''] = linesOf();
    writeFileSync(file, `${first}\n${third.replace('"seq":3', '"seq":2')}\n${fourth.replace('"seq":4', '"seq":3')}\n`);
    expect(check(file)).toMatchObject({ status: 1, stdout: expect.stringContaining('was changed') });
  });

  it('sees an end that is cut off by the head of an earlier check', () => {
    written(4);
    const head = /head (4:[0-9a-f]{64})/.exec(check(file).stdout)?.[1] as string;
    expect(check(file, '--head', head).status).toBe(0);
    const lines = linesOf();
    truncateSync(file, lines.slice(0, 3).join('\n').length + 1);
    expect(check(file).status).toBe(0);
    expect(check(file, '--head', head)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('line 4 is missing: the log ends with line 3'),
    });
  });

  it('says of a line before the first one that it is in none of the files, and of a changed one that it was changed', () => {
    written(4);
    const lines = linesOf();
    const hashes = lines.map((line, i) => `${i + 1}:${lineHash(line)}`);
    for (const hash of hashes) expect(check(file, '--head', hash).status).toBe(0);
    writeFileSync(
      file,
      lines
        .slice(2)
        .map((line) => `${line}\n`)
        .join(''),
    );
    expect(check(file, '--head', hashes[1] as string)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('line 2 is in none of these files, which begin with line 3'),
    });
    expect(check(file, '--head', `4:${'a'.repeat(64)}`)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('line 4, or one before it, was changed'),
    });
  });

  it('leaves out a last line that was cut off, as the gateway does', () => {
    written(2);
    appendFileSync(file, '{"seq":3,"prev":"');
    expect(check(file)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('UNBROKEN: lines 1 to 2 in 1 file. The last line is cut off'),
    });
  });

  it('needs a file, one that is there, and a hash that is one', () => {
    for (const args of [[], ['--head', 'x', file], [join(folder.path, 'none')], ['--no-such']])
      expect(check(...args).status, args.join(' ')).toBe(2);
    writeFileSync(file, '');
    expect(check(file)).toMatchObject({ status: 1, stdout: 'BROKEN: there is no line\n' });
    const help = spawnSync(process.execPath, [BIN, 'audit-log', '--help'], { encoding: 'utf8' });
    expect(help).toMatchObject({ status: 0, stdout: expect.stringContaining('usage: countersign audit-log check') });
  });
});

describe('a gateway with AUDIT_LOG', () => {
  let stage: Stage;
  afterEach(async () => stage?.close());

  it('writes a line for each request that reached the backend, with how it was attested, and no content', async () => {
    stage = await startStage();
    const url = await stage.gateway({ AUDIT_LOG: file }, ['a', 'b']);
    const { backend } = stage.service;
    backend.script = chatAnswer('xyzzy-answer');
    const plain = await chat(url, { ...CHAT, messages: [{ role: 'user', content: 'xyzzy-prompt' }] }, bearer('a'));
    const proven = await chat(url, { ...CHAT, tee: true }, bearer('b'));
    backend.script = answer('{"error":{"message":"xyzzy"}}', 404);
    const refused = await chat(url, { ...CHAT, model: 'xyzzy' }, bearer('a'));
    await ask(`${url}/v1/xyzzy?xyzzy`, { body: '{}', headers: bearer('a') });
    await chat(url, '{', bearer('a'));
    await ask(`${url}/v1/models`, { method: 'GET', headers: bearer('a') });
    await eventually(() => existsSync(file) && linesOf().length >= 4);
    const lines = linesOf().map((line) => JSON.parse(line));
    expect(lines).toHaveLength(4);
    expect(lines[0]).toMatchObject({
      id: plain.headers['x-request-id'],
      key: 'a',
      endpoint: '/v1/chat/completions',
      model: 'scripted',
      status: 200,
      input_tokens: 3,
      output_tokens: 2,
      tokens: 'backend',
    });
    expect(Math.abs(Date.parse(lines[0].time) - Date.now())).toBeLessThan(60_000);
    expect(lines[0]).not.toHaveProperty('nonce');
    expect(lines[1]).toMatchObject({
      id: proven.headers['x-attestation-id'],
      key: 'b',
      nonce: proven.json().attestation.nonce,
      level: 'none',
      devices: [expect.stringMatching(/^\d+$/)],
    });
    expect(lines[2]).toMatchObject({
      id: refused.headers['x-request-id'],
      model: 'other',
      status: 404,
      tokens: 'unknown',
    });
    expect(lines[3].endpoint).toBe('/v1/*');
    expect(readFileSync(file, 'utf8')).not.toContain('xyzzy');
    const health = await ask(`${url}/health`, { method: 'GET' });
    expect(health.json().audit).toEqual({ status: 'ok', lost: 0 });
    expect(check(file).status).toBe(0);
  });

  it('rotates at a size, and keeps so many files', async () => {
    stage = await startStage();
    const url = await stage.gateway({ AUDIT_LOG: file, limits: { audit_log_bytes: 65_536, audit_log_files: 1 } });
    const body = { ...CHAT, model: 'm'.repeat(128) };
    // A tenth of a second's lines are written at once: some 150 of them fill a file.
    for (let round = 0; round < 6; round++) {
      await Promise.all(Array.from({ length: 100 }, () => chat(url, body)));
      await eventually(() => lastOnDisk() === (round + 1) * 100);
    }
    const names = readdirSync(folder.path).filter((name) => name.startsWith('audit.log.'));
    expect(names).toHaveLength(1);
    expect(statSync(join(folder.path, names[0] as string)).size).toBeGreaterThan(65_536);
    expect(check(file)).toMatchObject({ status: 0, stdout: expect.stringMatching(/lines \d{2,} to 600 in 2 files/) });
  });

  it('names the same device as the verifier, and writes without keys too', async () => {
    stage = await startStage();
    const url = await stage.gateway({ AUDIT_LOG: file });
    const got = await chat(url, { ...CHAT, tee: true });
    const report = await ask(`${url}/~sev_gpu@1.0/verify?report=1`, { body: JSON.stringify(got.json().attestation) });
    await eventually(() => existsSync(file) && linesOf().length === 1);
    const line = JSON.parse(linesOf()[0] as string);
    expect(line.key).toBe('anyone');
    expect(report.json().claims.devices.map(({ ueid }: { ueid: string }) => ueid)).toEqual(line.devices);
  });
});

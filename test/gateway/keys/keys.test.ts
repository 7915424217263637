import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError } from '../../../gateway/base/config.ts';
import { type Keys, NO_LIMITS } from '../../../gateway/keys/keys.ts';
import { loadKeys } from '../../../gateway/keys/keys-file.ts';
import { eventually, type Folder, SILENT, temporaryFolder } from '../../support/harness.ts';

// Many short processes: a second each on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

let folder: Folder;
let file: string;
let keys: Keys | null = null;

beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, 'keys');
});
afterEach(() => {
  keys?.close();
  keys = null;
  folder.remove();
});

const hashed = (name: string, key: string, settings = '') =>
  `${name}:sha256:${createHash('sha256').update(key).digest('hex')} ${settings}\n`;
const load = (log = SILENT) => {
  keys = loadKeys({ api_keys_file: file, received: null, max_body_bytes: 1024 }, log, 20);
  return keys;
};
const withKey = (key: string) => {
  try {
    return keys?.authenticate({ authorization: `Bearer ${key}` }).name;
  } catch (error) {
    return (error as { code: string }).code;
  }
};

const logInto = (lines: string[]) => pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) });

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}
const CLI = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));
const command = (...args: string[]): Promise<Ran> =>
  new Promise((resolve) =>
    execFile(process.execPath, [CLI, 'keys', ...args], { env: { API_KEYS_FILE: file } }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    ),
  );

describe('the keys file', () => {
  it('holds hashes with names, limits and models; plain keys still work, with one warning', () => {
    const lines: string[] = [];
    writeFileSync(
      file,
      `\uFEFF# team\r\n\r\n${hashed('alice', 'a', 'rps=5 tee=2 tokens-per-day=10000000000 models=m/1,m:2 admin')}plain-one\nplain-two\n`,
    );
    load(logInto(lines));
    expect(['a', 'plain-one', 'plain-two', 'b'].map(withKey)).toEqual(['alice', 'line-4', 'line-5', 'invalid_api_key']);
    const { limits } = (keys as Keys).authenticate({ authorization: 'bearer  a' });
    const models = new Set(['m/1', 'm:2']);
    const none = { concurrent: null, streams: null, held_bytes: null };
    expect(limits).toEqual({ rps: 5, ...none, tee: 2, tokens_per_day: 10_000_000_000, models, admin: true });
    expect((keys as Keys).authenticate({ authorization: 'bearer plain-one' }).limits.admin).toBe(false);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('countersign keys add');
    expect(lines[0]).not.toContain('plain-one');
  });

  it('is refused at the start with one line that names the line and never quotes it', () => {
    const hex = 'a'.repeat(64);
    for (const [text, why] of [
      ['', /holds no key$/],
      ['# nothing\n', /holds no key$/],
      ['secret-key with-note', /line 1: a line is one plain key/],
      ['ok\nalice:sha256:secret-key', /line 2: a hashed key is written/],
      [`alice:sha512:${hex}`, /line 1: a hashed key is written/],
      [`secret key:sha256:${hex}`, /line 1: /],
      [`alice:sha256:${hex} secret-key=5`, /line 1: a setting is admin, or one of/],
      [`alice:sha256:${hex} admin admin`, /line 1: admin is given twice/],
      [`alice:sha256:${hex} admin=1`, /line 1: a setting is admin, or one of/],
      [`alice:sha256:${hex} rps=secret-key`, /line 1: rps is a whole number/],
      [`alice:sha256:${hex} rps=1 rps=2`, /line 1: rps is given twice/],
      [`alice:sha256:${hex} models=,`, /line 1: models names/],
      ['* rps=5\n', /holds no key$/],
      ['*\nok', /line 1: the line \* has limits of every key/],
      ['* secret-key=5\nok', /line 1: a setting is admin, or one of/],
      ['* rps=1 rps=2\nok', /line 1: rps is given twice/],
      ['* rps=secret-key\nok', /line 1: rps is a whole number/],
      ['* rps=5 admin\nok', /line 1: models and admin are given to a key by its name/],
      ['* models=m\nok', /line 1: models and admin are given to a key by its name/],
      ['* rps=5\nok\n* streams=5', /line 3 is a second line \*$/],
      ['* held-bytes=1023\nok', /line 1: held-bytes is 0 \(no limit\) or not less than MAX_BODY_BYTES \(1024\)$/],
      [`alice:sha256:${hex} held-bytes=1`, /line 1: held-bytes is 0 \(no limit\) or not less than/],
      [`*:sha256:${hex}`, /line 1: a name is/],
      [`${hashed('alice', 'a')}${hashed('alice', 'b')}`, /line 2 repeats/],
      [`${hashed('alice', 'a')}${hashed('bob', 'a')}`, /line 2 repeats/],
    ] as const) {
      writeFileSync(file, text);
      expect(() => load(), text).toThrow(why);
      expect(() => load(), text).toThrow(ConfigError);
      expect(() => load(), text).not.toThrow(/secret/);
    }
    file = join(folder.path, 'absent');
    expect(() => load()).toThrow(/cannot be read: ENOENT/);
  });

  it('has the limits of every key in the line *, wherever it stands; what a key’s own line says comes first', () => {
    const own = 'rps=0 concurrent=1 streams=2 tee=3 tokens-per-day=4 held-bytes=5000 models=m admin';
    const keys_of = `${hashed('bare', 'b')}${hashed('own', 'o', own)}plain\n`;
    const every = 'rps=5 concurrent=10 streams=4 tee=2 tokens-per-day=100000 held-bytes=33554432';
    const of = (key: string) => keys?.authenticate({ authorization: `Bearer ${key}` }).limits;
    const expected = { rps: 5, concurrent: 10, streams: 4, tee: 2, tokens_per_day: 100_000, held_bytes: 33_554_432 };
    for (const text of [`* ${every}\n${keys_of}`, `${keys_of}*\t${every}`]) {
      writeFileSync(file, text);
      load().close();
      for (const key of ['b', 'plain']) expect(of(key)).toEqual({ ...expected, models: null, admin: false });
      const limits = { rps: 0, concurrent: 1, streams: 2, tee: 3, tokens_per_day: 4, held_bytes: 5_000 };
      expect(of('o')).toEqual({ ...limits, models: new Set(['m']), admin: true });
      expect(withKey('*')).toBe('invalid_api_key');
    }
    writeFileSync(file, `* streams=7\n${keys_of}`);
    load().close();
    expect(of('b')).toEqual({ ...NO_LIMITS, streams: 7 });
  });

  it('takes a changed line * up, and keeps the one before where it is wrong', async () => {
    const lines: string[] = [];
    writeFileSync(file, `* rps=1\n${hashed('one', '1')}`);
    load(logInto(lines));
    const rps = () => keys?.authenticate({ authorization: 'Bearer 1' }).limits.rps;
    expect(rps()).toBe(1);
    writeFileSync(file, `* rps=2\n${hashed('one', '1')}`);
    await eventually(() => rps() === 2);
    writeFileSync(file, `* rps=many\n${hashed('one', '1')}`);
    await eventually(() => lines.some((line) => line.includes('"level":50')));
    expect(lines.at(-1)).toMatch(/API_KEYS_FILE line 1: rps is a whole number.*the keys from before stay/);
    expect(rps()).toBe(2);
    writeFileSync(file, hashed('one', '1'));
    await eventually(() => rps() === null);
  });

  it('counts again when it is written, renamed over or swapped by a symbolic link, without a restart', async () => {
    writeFileSync(file, hashed('one', '1'));
    load();
    writeFileSync(file, hashed('two', '22') + hashed('three', '3'));
    await eventually(() => withKey('22') === 'two' && withKey('1') === 'invalid_api_key');
    writeFileSync(`${file}.new`, hashed('four', '4'));
    renameSync(`${file}.new`, file);
    await eventually(() => withKey('4') === 'four' && withKey('22') === 'invalid_api_key');
    keys?.close();
    // As Kubernetes mounts a secret: keys → ..data/keys, ..data → a folder that is exchanged.
    for (const name of ['v1', 'v2']) {
      mkdirSync(join(folder.path, name));
      writeFileSync(join(folder.path, name, 'keys'), hashed(name, name));
    }
    symlinkSync('v1', join(folder.path, '..data'));
    symlinkSync('..data/keys', join(folder.path, 'mounted'));
    file = join(folder.path, 'mounted');
    load();
    expect(withKey('v1')).toBe('v1');
    symlinkSync('v2', join(folder.path, '..data_tmp'));
    renameSync(join(folder.path, '..data_tmp'), join(folder.path, '..data'));
    await eventually(() => withKey('v2') === 'v2' && withKey('v1') === 'invalid_api_key');
  });

  it('changes nothing while it is broken, and says so once', async () => {
    const lines: string[] = [];
    writeFileSync(file, hashed('one', '1'));
    load(logInto(lines));
    writeFileSync(file, 'two:sha256:secret\n');
    await eventually(() => lines.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/"level":50.*API_KEYS_FILE line 1: .*the keys from before stay/);
    expect(lines[0]).not.toContain('secret');
    expect(withKey('1')).toBe('one');
    writeFileSync(file, hashed('two', '2'));
    await eventually(() => withKey('2') === 'two');
    expect(withKey('1')).toBe('invalid_api_key');
  });

  it('changes nothing while its last line has no end, as one that is half-written', async () => {
    const lines: string[] = [];
    const whole = hashed('one', '1') + hashed('two', '2');
    // At the start the file is taken as it is.
    writeFileSync(file, whole.trimEnd());
    load(logInto(lines));
    for (const bytes of [whole.indexOf('two') + 3, whole.length - 2]) {
      const before = lines.length;
      writeFileSync(file, whole.slice(0, bytes));
      await eventually(() => lines.length > before);
      expect(lines.at(-1)).toMatch(
        /"level":50.*has no newline at its end, as if half-written: the keys from before stay/,
      );
      expect(['1', '2'].map(withKey)).toEqual(['one', 'two']);
    }
    writeFileSync(file, whole + hashed('three', '3'));
    await eventually(() => withKey('3') === 'three');
  });

  it('may hold many keys: a look-up among 20,000 takes what it takes among one', () => {
    const many = Array.from({ length: 20_000 }, (_, i) => hashed(`k${i}`, `key-${i}`)).join('');
    writeFileSync(file, many);
    load();
    const started = process.cpuUsage();
    for (let i = 0; i < 1_000; i++) expect(withKey(`key-${i * 20}`)).toBe(`k${i * 20}`);
    const { user, system } = process.cpuUsage(started);
    // Comparing with each of them is over 2 s of processor time.
    expect((user + system) / 1_000).toBeLessThan(500);
  });
});

describe('countersign keys', () => {
  it('adds a key that works and is printed once, lists names, removes, and keeps the rest of the file', async () => {
    writeFileSync(file, '# our team\nold-plain-key', { mode: 0o640 });
    const added = await command('add', 'alice', '--rps', '5', '--models', 'a,b', '--admin');
    expect(added.code).toBe(0);
    const key = added.out.trim();
    expect(key).toMatch(/^csk-[A-Za-z0-9_-]{43}$/);
    expect(readFileSync(file, 'utf8')).not.toContain(key);
    expect(readFileSync(file, 'utf8')).toMatch(
      /^# our team\nold-plain-key\nalice:sha256:[0-9a-f]{64} rps=5 models=a,b admin\n$/,
    );
    expect(statSync(file).mode & 0o777).toBe(0o640);
    load();
    expect([key, 'old-plain-key'].map(withKey)).toEqual(['alice', 'line-2']);
    expect((await command('list')).out).toBe('line-2 (kept as a plain key)\nalice rps=5 models=a,b admin\n');
    expect((await command('remove', 'line-2')).code).toBe(0);
    expect(readFileSync(file, 'utf8')).toMatch(/^# our team\n\nalice:sha256:\S+ rps=5 models=a,b admin\n$/);
    await eventually(() => withKey('old-plain-key') === 'invalid_api_key');
  });

  it('prints the line *, keeps it where it stands, and makes no key of that name', async () => {
    writeFileSync(file, `# every key\n*  streams=4 rps=5\n${hashed('alice', 'a').trim()}\n`);
    expect((await command('add', 'bob', '--held-bytes', '33554432')).code).toBe(0);
    expect((await command('list')).out).toBe('* rps=5 streams=4\nalice\nbob held-bytes=33554432\n');
    expect((await command('remove', 'alice')).code).toBe(0);
    expect(readFileSync(file, 'utf8')).toMatch(
      /^# every key\n\* {2}streams=4 rps=5\nbob:sha256:[0-9a-f]{64} held-bytes=33554432\n$/,
    );
    expect((await command('remove', 'bob')).err).toMatch(/would hold no key/);
    for (const words of [
      ['add', '*'],
      ['remove', '*'],
    ])
      expect((await command(...words)).code).not.toBe(0);
    writeFileSync(file, '* rps=1\n* rps=2\nplain\n');
    expect((await command('list')).err).toMatch(/the file line 2 is a second line \*/);
  }, 20_000);

  it('removes the key of that name and no other, whatever the name is', async () => {
    const hashed = (name: string, digit: string) => `${name}:sha256:${digit.repeat(64)}`;
    writeFileSync(file, `${hashed('line-2', 'a')}\n${hashed('bob', 'b')}\n\n# line-3\nplain-key\n`);
    expect((await command('remove', 'line-2')).code).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(`\n${hashed('bob', 'b')}\n\n# line-3\nplain-key\n`);
    expect((await command('remove', 'line-5')).code).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(`\n${hashed('bob', 'b')}\n\n# line-3\n\n`);
    writeFileSync(file, `${hashed('alice', 'a')}\n${hashed('bob', 'b')}\n`);
    expect((await command('remove', 'alice')).code).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(`${hashed('bob', 'b')}\n`);
    writeFileSync(file, `${hashed('alice', 'a')}\n${hashed('bob', 'b')}`);
    expect((await command('remove', 'alice')).code).toBe(0);
    expect(readFileSync(file, 'utf8'), 'ends with a newline').toBe(`${hashed('bob', 'b')}\n`);
  });

  it('leaves every other plain key the name that list showed: its line keeps its number', async () => {
    writeFileSync(file, 'one\ntwo\nthree\nfour\n');
    load();
    for (const name of ['line-2', 'line-3']) expect((await command('remove', name)).code).toBe(0);
    expect((await command('list')).out).toBe('line-1 (kept as a plain key)\nline-4 (kept as a plain key)\n');
    await eventually(() => withKey('three') === 'invalid_api_key');
    expect(['one', 'two', 'three', 'four'].map(withKey)).toEqual([
      'line-1',
      'invalid_api_key',
      'invalid_api_key',
      'line-4',
    ]);
  });

  it('leaves the file the same one, as a container that has it mounted alone must see it', async () => {
    writeFileSync(file, hashed('alice', 'sk-a') + hashed('bob', 'sk-b'));
    chmodSync(file, 0o400);
    const mounted = join(folder.path, 'mounted');
    linkSync(file, mounted); // another way to the same file: a rename would leave it the old one
    keys = loadKeys({ api_keys_file: mounted, received: null, max_body_bytes: 1024 }, SILENT, 20);
    expect((await command('remove', 'alice')).code).toBe(0);
    await eventually(() => withKey('sk-a') === 'invalid_api_key');
    const added = await command('add', 'carol');
    await eventually(() => withKey(added.out.trim()) === 'carol');
    expect(withKey('sk-b')).toBe('bob');
    expect([statSync(file).mode & 0o777, readdirSync(folder.path).sort()]).toEqual([0o400, ['keys', 'mounted']]);
  });

  it('never writes a file that a gateway would refuse', async () => {
    const most = Array.from({ length: 100_000 }, (_, i) => hashed(`k${i}`, `${i}`)).join('');
    writeFileSync(file, most);
    const got = await command('add', 'alice');
    expect([got.code, got.out]).toEqual([1, '']);
    expect(got.err).toMatch(/holds more than 100000 keys/);
    expect(readFileSync(file, 'utf8')).toBe(most);
  });

  it('makes the file for its owner alone, and refuses what would go wrong later', async () => {
    const first = await command('add', 'alice');
    expect(first.code).toBe(0);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const before = readFileSync(file, 'utf8');
    for (const [args, code, why] of [
      [['add', 'alice'], 1, /has a key named alice/],
      [['remove', 'bob'], 1, /has no key named bob/],
      [['remove', 'alice'], 1, /would hold no key/],
      [['add', 'a b'], 2, /a name is/],
      [['add', 'bob', '--rps', '-1'], 2, /./],
      [['add', 'bob', '--rps', 'many'], 2, /rps is a whole number/],
      [['add', 'bob', '--models', ''], 2, /models names/],
      [['add'], 2, /usage/],
      [['list', '--rps', '1'], 2, /only add takes settings/],
      [['steal', 'bob'], 2, /no such command/],
      [['add', 'bob', '--unknown'], 2, /usage/],
      [['list', '--file', `${file}.mistyped`], 1, /is not there/],
      [['remove', 'alice', '--file', `${file}.mistyped`], 1, /is not there/],
    ] as const) {
      const got = await command(...args);
      expect([got.code, got.out], args.join(' ')).toEqual([code, '']);
      expect(got.err).toMatch(why);
    }
    writeFileSync(`${file}.new`, '');
    expect((await command('add', 'bob')).err).toMatch(/is being written/);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });
});

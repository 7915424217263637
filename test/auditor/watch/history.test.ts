// The history: a chain that survives a cut, a full disk and rotation, and refuses what was changed.
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openHistory, readHistory } from '../../../auditor/watch/history.ts';
import { lockFolder } from '../../../auditor/watch/lock.ts';
import { openProofs } from '../../../auditor/watch/proofs.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { checkChain } from './chain.ts';

let folder: Folder;
let history: string;
beforeEach(() => {
  folder = temporaryFolder();
  history = join(folder.path, 'history');
  mkdirSync(history);
});
afterEach(() => folder.remove());

const AT = new Date('2026-11-26T12:00:00Z');
const open = (watch = 'w', file_bytes = 1000) => openHistory(history, watch, file_bytes, () => {});

function written(count: number, file_bytes?: number): void {
  const one = open('w', file_bytes);
  for (let i = 0; i < count; i++) one.append({ number: i }, AT);
  one.close();
}

const files = () => readdirSync(history).sort();
const text = (name = files().at(-1) ?? '') => readFileSync(join(history, name), 'utf8');

describe('the history', () => {
  it('goes on where it ended, over several files, as a program that knows only its page confirms', () => {
    written(10);
    const seen: number[] = [];
    const again = openHistory(history, 'w', 1000, ({ entry }) => seen.push(entry));
    expect([again.cut, again.head.entry, seen]).toEqual([0, 10, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]);
    again.append({ kind: 'more' }, AT);
    again.close();
    expect(files().length).toBeGreaterThan(1);
    expect(checkChain(folder.path)).toEqual({ entries: 11, proofs: 0, last: again.head.sha256 });
  });

  it.each([1, 30])('finds a last line that was cut by %i bytes, and goes on with the entry before', (bytes) => {
    written(3);
    truncateSync(join(history, files()[0] ?? ''), text().length - bytes);
    const again = open();
    expect([again.cut > 0, again.head.entry]).toEqual([true, 2]);
    again.append({ kind: 'cut', bytes: again.cut }, AT);
    again.close();
    expect(checkChain(folder.path).entries).toBe(3);
  });

  it('begins a file again whose first line was cut', () => {
    const name = '00000001.jsonl';
    writeFileSync(join(history, name), '{"entry":1');
    const one = open();
    expect([one.cut, one.append({}, AT).entry]).toEqual([10, 1]);
    one.close();
    expect([files(), checkChain(folder.path).entries]).toEqual([[name], 1]);
  });

  it.each([
    [
      'an edited line',
      (name: string) => text(name).replace('"number":1', '"number":7'),
      'entry 3 does not hold the hash of the entry before it',
    ],
    ['a line that was taken out', (name: string) => text(name).replace(/^.*"number":1.*\n/m, ''), 'entry 2 is missing'],
    ['a line that is not JSON', (name: string) => text(name).replace('"number":1}', ''), 'line 2: it is not JSON'],
    [
      'a line that is no entry',
      (name: string) => text(name).replace(/^.*"number":1.*$/m, 'null'),
      'it is no entry of a history',
    ],
    [
      'a file under another name',
      (name: string) => text(name).replace(/^.*\n/, ''),
      'the file is named for another entry',
    ],
  ])('refuses %s, writes nothing, and takes the whole one again', (_what, changed, sentence) => {
    written(4);
    const [name = ''] = files();
    const whole = text(name);
    const edited = changed(name);
    writeFileSync(join(history, name), edited);
    expect(() => open()).toThrow(sentence);
    expect(text(name)).toBe(edited);
    writeFileSync(join(history, name), whole);
    expect(open().append({}, AT).entry).toBe(5);
  });

  it('refuses that of another watch, and a file that another history has', () => {
    written(4);
    expect(() => open('other')).toThrow("it is of the watch 'w', and nodes.json is of 'other'");
    const [name = ''] = files();
    const mine = text(name);
    rmSync(history, { recursive: true });
    mkdirSync(history);
    written(20, 1000);
    writeFileSync(join(history, name), mine.replaceAll('12:00', '13:00'));
    expect(() => open()).toThrow('does not hold the hash');
  });

  it('refuses a cut line that is not the last of all', () => {
    written(10);
    const [first = ''] = files();
    truncateSync(join(history, first), text(first).length - 3);
    expect(() => open()).toThrow('its last line has no end');
  });

  it('ends where another program writes to its file', () => {
    const one = open();
    one.append({}, AT);
    appendFileSync(join(history, files()[0] ?? ''), '{"entry":2}\n');
    expect(() => one.append({}, AT)).toThrow('another program writes to it');
    one.close();
  });

  it('drops its oldest files, and keeps the chain of what is left', () => {
    const one = open();
    for (let i = 0; i < 60; i++) one.append({ number: i }, AT);
    const kept = files();
    one.keep(3000);
    expect([one.bytes <= 3000, files().length < kept.length, one.oldest > 1]).toEqual([true, true, true]);
    one.append({ kind: 'after' }, AT);
    one.close();
    expect(checkChain(folder.path)).toMatchObject({ last: one.head.sha256, entries: 61 - one.oldest + 1 });
    const { oldest, head } = readHistory(history, 'w', () => {});
    expect([oldest, head]).toEqual([one.oldest, one.head]);
  });

  it('stays whole where the disk is full, and says so', () => {
    const module = pathToFileURL(join(import.meta.dirname, '../../../auditor/watch/history.ts')).href;
    const program = `import { openHistory } from '${module}';
      const one = openHistory(process.argv[1], 'w', 1e9, () => {});
      try { for (;;) one.append({ filler: 'x'.repeat(500) }, new Date()); } catch (error) { console.log(one.head.entry + ' ' + error.message); }`;
    // A limit on the size of a file is what a full disk is to a program, and needs no root.
    const script = 'ulimit -f 8; exec "$0" --disable-warning=ExperimentalWarning --input-type=module -e "$1" "$2"';
    const { stdout } = spawnSync('bash', ['-c', script, process.execPath, program, history], { encoding: 'utf8' });
    const [, count] = /^(\d+) .*: the disk is full; the history ends with its last whole entry/.exec(stdout) ?? [];
    expect(Number(count)).toBeGreaterThan(5);
    expect(checkChain(folder.path).entries).toBe(Number(count));
    expect(open().append({}, AT).entry).toBe(Number(count) + 1);
  });
});

describe('the proofs', () => {
  const received = (content: string) => ({ kind: 'answers', bytes: Buffer.from(content) }) as const;

  it('are named by their hash, once each, and dropped by their last use', () => {
    const one = openProofs(folder.path);
    const [a, b] = ['a', 'b'].map((content) => one.keep(received(content.repeat(100)))) as [string, string];
    utimesSync(join(folder.path, a), new Date(0), new Date(0));
    expect([one.bytes, one.keep(received('a'.repeat(100))), one.bytes]).toEqual([200, a, 200]);
    const again = openProofs(folder.path);
    again.drop(150);
    expect([again.has(a), again.has(b), again.bytes]).toEqual([true, false, 100]);
    expect(readdirSync(join(folder.path, 'answers'))).toEqual([a.slice('answers/'.length)]);
  });

  it('begin without what was half written', () => {
    openProofs(folder.path);
    writeFileSync(join(folder.path, 'answers/x.json.partial'), 'half');
    expect(openProofs(folder.path).bytes).toBe(0);
    expect(readdirSync(join(folder.path, 'answers'))).toEqual([]);
  });
});

describe('the lock', () => {
  const held = (holder: object | string, age_ms = 0) => {
    const file = join(folder.path, 'lock');
    writeFileSync(file, typeof holder === 'string' ? holder : JSON.stringify(holder));
    const then = new Date(Date.now() - age_ms);
    utimesSync(file, then, then);
  };
  const REFUSED = 'another watch writes there';

  it('is had by one at a time, and given back', () => {
    const release = lockFolder(folder.path);
    expect(() => lockFolder(folder.path)).toThrow(REFUSED);
    release();
    lockFolder(folder.path)();
    expect(readdirSync(folder.path)).toEqual(['history']);
  });

  it('of a process that ended is taken at once, of one that lives never, of another machine when it is old', () => {
    const { pid } = spawnSync('true');
    held({ host: hostname(), pid, id: 'x' });
    lockFolder(folder.path)();
    held({ host: hostname(), pid: process.ppid, id: 'x' }, 1e9);
    expect(() => lockFolder(folder.path)).toThrow(REFUSED);
    held({ host: 'other', pid: 1, id: 'x' });
    expect(() => lockFolder(folder.path)).toThrow(REFUSED);
    held({ host: 'other', pid: 1, id: 'x' }, 100_000);
    lockFolder(folder.path)();
    held('garbage', 100_000);
    lockFolder(folder.path)();
  });
});

// Nodes that lie, redirect, send without end or give a key back: each a sentence, nothing of the key in a file, and afterwards a proof.
import { execFile } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createAlarms } from '../../../auditor/watch/alarms.ts';
import type { Kept } from '../../../auditor/watch/board.ts';
import { WEIGHTS } from '../../support/launch-file.ts';
import { checkChain } from './chain.ts';
import {
  type Behaviour,
  type Fleet,
  type Front,
  hangs,
  MEASURED,
  nodesFile,
  once,
  startFleet,
  startFront,
  through,
} from './stage.ts';

const KEY = 'sk-watcher-0123456789abcdef';
let fleet: Fleet;
let front: Front;
let out: string;
let rounds = 0;
const honest: Behaviour = (request, body, response) => through(() => fleet.plain.gateway.url)(request, body, response);
beforeAll(async () => {
  fleet = await startFleet();
  front = await fleet.front(honest);
  writeFileSync(join(fleet.folder.path, 'key'), KEY);
}, 60_000);
beforeEach(() => {
  out = join(fleet.folder.path, `out-${rounds++}`);
  front.seen.length = 0;
});
afterAll(() => fleet.close());

const file = (more: object = {}, all: object = {}) =>
  nodesFile(fleet.folder.path, [{ url: front.url, api_key_file: 'key', ...more }], all);
const status = () => (JSON.parse(readFileSync(join(out, 'status.json'), 'utf8')).nodes as Kept[])[0];
/** The state that a node gets, and afterwards that of the same node, honest. */
async function tried(behaviour: Behaviour, more: object = {}) {
  front.behaviour = behaviour;
  const code = await once(file(more), out, fleet.root, { timeout_ms: 3_000 });
  const seen = status();
  front.behaviour = honest;
  expect(await once(file(), out, fleet.root)).toBe(0);
  const written = globSync('**/*.{json,jsonl,html,xml,svg,prom}', { cwd: out });
  expect(written.length).toBeGreaterThan(5);
  for (const name of written) expect(readFileSync(join(out, name), 'utf8'), name).not.toContain(KEY);
  expect(checkChain(out).entries).toBe(2);
  return [code, seen?.state, seen?.code, seen?.reason];
}

/** Sends JSON without an end, as fast as it is read. @param path of the request that is answered so */
const endless =
  (path: string, counted: (bytes: number) => void): Behaviour =>
  (request, body, response) => {
    if (!request.url?.startsWith(path)) return honest(request, body, response);
    const chunk = Buffer.alloc(64 * 1024, '{"a":[');
    let left = 500 * 1024 * 1024;
    response.writeHead(200, { 'content-type': 'application/json' });
    const send = () => {
      while (left > 0 && !response.destroyed) {
        left -= chunk.length;
        counted(chunk.length);
        if (!response.write(chunk)) return void response.once('drain', send);
      }
      response.end();
    };
    send();
  };

const only =
  (path: string, behaviour: Behaviour): Behaviour =>
  (request, body, response) =>
    request.url?.startsWith(path) ? behaviour(request, body, response) : honest(request, body, response);

const CHAT = '/v1/chat/completions';
const SESSION = '/v1/attestation/session';
const says =
  (text: string, code = 200): Behaviour =>
  (_request, _body, response) =>
    void response.writeHead(code, { 'content-type': 'application/json' }).end(text);

describe('a node that', () => {
  it.each([CHAT, SESSION])('redirects %s fails, and the key goes nowhere else', async (path) => {
    const other = await startFront(says('{}'));
    const elsewhere: Behaviour = (_request, _body, response) =>
      void response.writeHead(307, { location: other.url }).end();
    expect(await tried(only(path, elsewhere))).toEqual([
      1,
      'failed',
      'redirected',
      expect.stringMatching(/^The node sends its clients/),
    ]);
    expect(front.seen.some(({ authorization }) => authorization === `Bearer ${KEY}`)).toBe(true);
    expect(other.seen).toEqual([]);
    await other.close();
  });

  it.each([CHAT, SESSION])('answers %s with 500 MB fails, and little of it is read', async (path) => {
    let sent = 0;
    const seen = await tried(endless(path, (bytes) => (sent += bytes)));
    expect(seen).toEqual([
      1,
      'failed',
      'response_too_large',
      'The node sends more than any answer to this question has.',
    ]);
    expect(sent).toBeLessThan(64 * 1024 * 1024);
  });

  it.each([
    ['hangs', hangs, [3, 'away', 'timeout']],
    [
      'hangs in the middle',
      only(CHAT, (_q, _b, response) => void response.writeHead(200, { 'content-type': 'application/json' }).write('{')),
      [3, 'away', 'timeout'],
    ],
    [
      'breaks off',
      only(
        CHAT,
        (_q, _b, response) =>
          void response
            .writeHead(200, { 'content-type': 'application/json', 'content-length': 9 })
            .write('{', () => response.destroy()),
      ),
      [3, 'away', 'response_broken'],
    ],
    [
      'closes',
      (_request: unknown, _body: unknown, response: { destroy(): void }) => response.destroy(),
      [3, 'away', 'unreachable'],
    ],
    ['does not accept the key', only(CHAT, says('{}', 401)), [3, 'away', 'key_refused']],
    ['is overloaded', only(CHAT, says('{}', 429)), [3, 'away', 'http_429']],
    ['says anything', only(CHAT, says('{"choices": []}')), [1, 'failed', 'attestation_missing']],
    ['says no JSON', only(CHAT, says('<html>')), [1, 'failed', 'attestation_missing']],
    ['has any session', only(SESSION, says('{"statement": 7}')), [1, 'failed', 'not_an_attestation']],
    [
      'does not serve its bundle',
      only('/v1/attestation/bundles', says('{}', 404)),
      [3, 'unchecked', 'bundle_unavailable'],
    ],
    ['serves another bundle', only('/v1/attestation/bundles', says('{}')), [1, 'failed', 'bundle_mismatch']],
  ])('%s', async (_what, behaviour, expected) => {
    const [code, state, named, reason] = await tried(behaviour as Behaviour);
    expect([code, state, named]).toEqual(expected);
    expect(reason).toMatch(/^[A-Z].*\.$/);
  });

  it('sends the key back fails, and nothing of that is kept', async () => {
    const echo = (request: { headers: { authorization?: string | undefined } }) =>
      says(JSON.stringify({ choices: [], seen: request.headers.authorization }));
    const seen = await tried(only(CHAT, (request, body, response) => echo(request)(request, body, response)));
    expect(seen).toEqual([1, 'failed', 'key_echoed', expect.stringContaining('give the watch a new key')]);
  });

  it('sends an old answer fails', async () => {
    let old = '';
    const replaying: Behaviour = async (request, body, response) => {
      if (old !== '') return says(old)(request, body, response);
      const answer = await fetch(`${fleet.plain.gateway.url}${CHAT}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: new Uint8Array(body),
      });
      old = await answer.text();
      says(old)(request, body, response);
    };
    front.behaviour = only(CHAT, replaying);
    expect(await once(file(), out, fleet.root)).toBe(0);
    expect([await once(file(), out, fleet.root), status()?.code]).toEqual([1, 'request_mismatch']);
  });

  it('has a device that is not on the list fails, and is proven with it', async () => {
    const listed = { devices: ['ab'.repeat(32)] };
    const seen = await tried(honest, listed);
    expect(seen).toEqual([
      1,
      'failed',
      'device_not_accepted',
      expect.stringMatching(/not on the list \([0-9a-f]{12}…\)/),
    ]);
    const { devices } = status() as Kept;
    expect(await once(file({ devices }), out, fleet.root)).toBe(0);
  });

  it('has other weights than are demanded fails, and is proven with its own', async () => {
    const measured = { url: fleet.sealing.gateway.url, ...MEASURED };
    const nodes = (weights: string) => nodesFile(fleet.folder.path, [{ ...measured, weights }]);
    expect(await once(nodes('ab'.repeat(32)), out, fleet.root)).toBe(1);
    expect([status()?.code, status()?.reason]).toEqual([
      'weights_mismatch',
      'The machine was started with other weights than yours.',
    ]);
    expect(await once(nodes(WEIGHTS.verity_root), out, fleet.root)).toBe(0);
  });

  it('is of a lower level than is demanded fails, and has its proof kept', async () => {
    const seen = await tried(honest, { level: 'gpu+cpu' });
    expect(seen).toEqual([1, 'failed', 'level_too_low', 'Its proof is of level gpu, and gpu+cpu is demanded.']);
  });
});

describe('the webhook', () => {
  const bodies: { state: string; was: string | null }[] = [];
  it('is told of failures and their end, again where it was away, and not of one miss', async () => {
    const hook = await startFront(says('{}', 500));
    const nodes = () => file({}, { webhook: `${hook.url}/secret`, misses: 2 });
    front.behaviour = hangs;
    const short = { timeout_ms: 300 };
    expect(await once(nodes(), out, fleet.root, short)).toBe(3);
    expect(hook.seen).toEqual([]);
    const waiting = createAlarms(`${hook.url}/secret`);
    waiting.add({ entry: { node: 'node-2', state: 'failed', warnings: [] } as never, was: 'good' }, 'w');
    expect(await waiting.send()).toBe('the webhook answered 500: it is told again with the next round');
    hook.behaviour = (_request, body, response) => {
      bodies.push(JSON.parse(body.toString()));
      response.end();
    };
    expect([await waiting.send(), await waiting.send()]).toEqual([null, null]);
    expect(await once(nodes(), out, fleet.root, short)).toBe(1);
    front.behaviour = honest;
    expect(await once(nodes(), out, fleet.root)).toBe(0);
    expect(bodies).toMatchObject([
      { node: 'node-2', state: 'failed', was: 'good' },
      { node: 'node-1', state: 'failed', was: 'away', code: 'timeout', reason: expect.any(String), entry: 2 },
      { node: 'node-1', state: 'good', was: 'failed', entry: 3 },
    ]);
    await hook.close();
    front.behaviour = says('{}');
    expect(await once(nodes(), out, fleet.root)).toBe(1);
    front.behaviour = honest;
  });
});

describe('the folder', () => {
  it('of a full disk ends the watch with status 2, keeps its history whole, and goes on with room', async () => {
    const nodes = file();
    expect(await once(nodes, out, fleet.root)).toBe(0);
    const root = join(fleet.folder.path, 'root.pem');
    const command = ['bin/countersign.js', 'watch', nodes, '--out', out, '--once', '--allow-simulated', root];
    const script = 'ulimit -f 2; exec "$0" "$@"';
    const ran = promisify(execFile)('bash', ['-c', script, process.execPath, ...command], { timeout: 30_000 });
    await expect(ran).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/: the disk is full; the history ends/),
    });
    expect(checkChain(out).entries).toBe(1);
    expect(globSync('**/*.partial', { cwd: out })).toEqual([]);
    expect(await once(nodes, out, fleet.root)).toBe(0);
    expect(checkChain(out).entries).toBe(2);
  });
});

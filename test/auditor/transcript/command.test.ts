// `countersign transcript` over a real run: what it prints and writes, its exit statuses, and input that is not as it should be.
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { transcriptFile } from '../../../auditor/transcript/file.ts';
import { verifyingFetch } from '../../../verify/clients/fetch.ts';
import { planned, TEN_CALLS, toolResult } from '../../support/agent-model.ts';
import { chatAnswer } from '../../support/backend.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { startProcess } from '../../support/process.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const EVIL = '<script>alert(1)</script> \u202e& "<b>"';
let folder: Folder;
let root: string;
let lines: string[];
let compact: string[];
beforeAll(async () => {
  folder = temporaryFolder();
  root = join(folder.path, 'root.pem');
  writeFileSync(root, service.sidecar.attester.simulated?.root ?? '');
  lines = await ran(false);
  compact = await ran(true);
});
afterAll(() => folder.remove());

interface Message {
  readonly content: string | null;
  readonly tool_calls?: readonly { id: string; function: { name: string; arguments: string } }[];
}

/** A run by hand. @returns the lines of its transcript */
async function ran(isCompact: boolean): Promise<string[]> {
  const path = join(folder.path, `run-${isCompact}.jsonl`);
  const transcript = transcriptFile(path);
  service.backend.script = planned(TEN_CALLS.slice(-3), isCompact ? 'c' : 'w');
  const send = verifyingFetch({ transcript, simulatedRoot: readFileSync(root, 'utf8'), compact: isCompact });
  const messages: object[] = [{ role: 'user', content: EVIL }];
  for (;;) {
    const body = JSON.stringify({ model: 'm', messages });
    const headers = { 'content-type': 'application/json' };
    const response = await send(`${service.url}/v1/chat/completions`, { method: 'POST', headers, body });
    const [choice] = ((await response.json()) as { choices: { message: Message }[] }).choices;
    const message = choice?.message as Message;
    messages.push(message);
    for (const { id, function: it } of message.tool_calls ?? [])
      messages.push({ role: 'tool', tool_call_id: id, content: toolResult(it.name, JSON.parse(it.arguments)) });
    if (message.tool_calls === undefined) break;
  }
  await transcript.close();
  return readFileSync(path, 'utf8').trimEnd().split('\n');
}

let number = 0;
async function transcript(given: readonly string[] | string, ...args: string[]) {
  const file = join(folder.path, `${++number}.jsonl`);
  writeFileSync(file, typeof given === 'string' ? given : `${given.join('\n')}\n`);
  return command(file, ...args);
}

async function command(file: string, ...args: string[]) {
  const child = startProcess('bin/countersign.js', ['transcript', file, '--allow-simulated', root, ...args]);
  return { code: (await child.exited).code, output: child.output() };
}

describe('countersign transcript', () => {
  it('says of each turn what it continues, and of the run what is proven and what is not', async () => {
    const { code, output } = await transcript(lines);
    expect(output).toBe(`turn 1  VALID  none  begins run 1: told 1 message; said 1 call ("get_weather")
turn 2  VALID  none  continues turn 1: told 1 result; said 1 call ("get_time")
turn 3  VALID  none  continues turn 2: told 1 result; said 1 answer

3 turns in 1 run, 3 valid; by "scripted"
  + the model's side, in 3 of 3 turns: it was given exactly this request, and gave exactly this answer and these calls
  + each result that the model was told, at first, answers a call that it made, and nothing was put between
  - not proven: that a tool ran, or that its result is true: a result is what the model was told, and one that was changed before is not seen
  - not proven: that this is everything: turns at the end, branches and whole runs may be left out

UNBROKEN (level: none)
`);
    expect(code).toBe(0);
  });

  it('claims nothing of results where none was told', async () => {
    const { code, output } = await transcript(lines.slice(0, 1));
    expect([code, output]).toEqual([
      0,
      expect.stringContaining("  + the model was told no tool's result, and nothing was put between\n"),
    ]);
    expect(output).not.toContain('answers a call that it made');
  });

  it('has a line of JSON for each turn, then the summary, and none of the words', async () => {
    const { code, output } = await transcript(lines, '--json');
    const [first, second, , last] = output
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(code).toBe(0);
    expect(first).toMatchObject({
      turn: 1,
      line: 1,
      verdict: 'VALID',
      run: 1,
      parent: null,
      endpoint: '/v1/chat/completions',
    });
    expect(second).toMatchObject({
      parent: 1,
      told: [{ kind: 'result', id: 'call_w1' }],
      said: [[{ kind: 'call', name: 'get_time' }]],
    });
    expect(last.summary).toMatchObject({ verdict: 'UNBROKEN', turns: 3, runs: 1, valid: 3, found: {}, first: null });
    expect(output).not.toMatch(/script>|degrees|noon|warmest/);
  });

  it('reads compact proofs, with their bundle in a line of its own, and misses that bundle', async () => {
    expect(compact.map((line) => line.slice(0, 8))).toEqual([...Array(3)].flatMap(() => ['{"token"', '{"raw":"']));
    expect(await transcript(compact)).toMatchObject({ code: 0, output: expect.stringContaining('\nUNBROKEN') });
    const { code, output } = await transcript(compact.filter((line) => line.startsWith('{"raw"')));
    expect(code).toBe(3);
    expect(output).toContain('continues turn 1: told 1 result');
    expect(output).toContain(
      '\nINCOMPLETE: proof_incomplete in turn 1: its proof cannot be checked to the end: bundle_unavailable',
    );
    const verified = startProcess('bin/countersign.js', [
      'verify',
      join(folder.path, 'run-true.jsonl'),
      '--allow-simulated',
      root,
    ]);
    expect((await verified.exited).code).toBe(0);
  });

  it('demands the software of a release, and its weights', async () => {
    const unknown = await transcript(lines, '--release', 'owner/repo', '--offline');
    expect([unknown.code, unknown.output]).toEqual([
      3,
      expect.stringMatching(/\nINCOMPLETE: proof_incomplete in turn 1: .*release_unavailable/),
    ]);
    const { code, output } = await transcript(lines, '--weights', 'cd'.repeat(32));
    expect([code, output]).toEqual([1, expect.stringMatching(/\nBROKEN: proof_invalid in turn 1: .*weights_missing/)]);
  });

  it('demands the level that is asked for', async () => {
    const { code, output } = await transcript(lines, '--require-level', 'gpu');
    expect([code, output]).toEqual([
      1,
      expect.stringContaining('BROKEN: proof_invalid in turn 1: its proof does not verify: policy_refused'),
    ]);
  });
});

describe('bad input', () => {
  it.each([
    ['an empty file', () => '\n', 2, 'no exchange is in it'],
    [
      'a line that is not JSON',
      () => ['{"raw":', ...lines],
      1,
      'BROKEN: proof_invalid in turn 1: the line is no exchange: it is not JSON',
    ],
    [
      'a line that is no proof',
      () => [...lines, '{"raw":"{}"}'],
      1,
      'BROKEN: proof_invalid in turn 4: its proof does not verify: not_an_attestation',
    ],
    [
      'a last line that breaks off',
      () => `${lines.join('\n')}\n{"raw":"{`,
      3,
      'INCOMPLETE: line_cut in turn 4: the last line breaks off',
    ],
    [
      'a line twice',
      () => [...lines, lines[1] ?? ''],
      1,
      'BROKEN: repeated in turn 4: it is the exchange of turn 2 once more',
    ],
    [
      'lines out of order',
      () => [lines[0], lines[2], lines[1]].map(String),
      1,
      'out_of_order: turn 2 continues it, and stands before it in the file',
    ],
    [
      'two runs mixed',
      () => [lines[0], ...compact.slice(0, 4), lines[1], lines[2], ...compact.slice(4)].map(String),
      0,
      '6 turns in 2 runs, 6 valid',
    ],
    ['a proof that is missing', () => [lines[0], lines[2]].map(String), 1, 'BROKEN: call_invented in turn 2'],
  ])('%s', async (_name, given, code, words) => {
    const { code: found, output } = await transcript(given());
    expect([found, output]).toEqual([code, expect.stringContaining(words)]);
  });

  it('names files that are not there, and options that there are not', async () => {
    expect(await command(join(folder.path, 'none.jsonl'))).toMatchObject({
      code: 2,
      output: expect.stringContaining('no such file'),
    });
    expect(await transcript(lines, '--html', join(folder.path, 'no/where.html'))).toMatchObject({ code: 2 });
    expect(await transcript(lines, '--challenge', 'ab'.repeat(32))).toMatchObject({ code: 2 });
  });

  it('takes an exchange of another endpoint in between', async () => {
    const path = join(folder.path, 'other.jsonl');
    const sink = transcriptFile(path);
    service.backend.script = chatAnswer('x');
    const send = verifyingFetch({ transcript: sink, simulatedRoot: readFileSync(root, 'utf8') });
    const headers = { 'content-type': 'application/json' };
    service.backend.script = (_request, response) =>
      void response
        .setHeader('content-type', 'application/json')
        .end('{"object":"list","data":[{"embedding":[1]}],"model":"e"}');
    const body = '{"model":"e","input":"a"}';
    expect((await send(`${service.url}/v1/embeddings`, { method: 'POST', headers, body })).status).toBe(200);
    const between = readFileSync(path, 'utf8').trim();
    const { code, output } = await transcript([lines[0] ?? '', between, ...lines.slice(1)]);
    expect([code, output]).toEqual([
      0,
      expect.stringContaining('turn 2  VALID  none  in no run\n  note  no_conversation'),
    ]);
    expect(output).toContain('turn 3  VALID  none  continues turn 1');
  });
});

describe('--redact', () => {
  it('keeps proofs and hashes, no words, and what an opened turn was', async () => {
    const out = join(folder.path, 'redacted.jsonl');
    const written = await transcript(compact, '--redact', out);
    expect([written.code, written.output]).toEqual([
      0,
      expect.stringContaining('incomplete until the whole line of one is shown'),
    ]);
    const text = readFileSync(out, 'utf8');
    expect(text).not.toMatch(/script|get_weather|degrees|call_c|warmest|"raw"/);
    const bundles = compact.filter((line) => line.startsWith('{"token"'));
    expect(text.split('\n').filter((line) => line.startsWith('{"token"'))).toEqual(bundles);
    expect(text.split('\n').filter((line) => line.startsWith('{"redacted":1,'))).toHaveLength(3);
    const { code, output } = await command(out);
    expect(code).toBe(3);
    expect(output).toContain('turn 2  INCOMPLETE  none  continues turn 1: told 1 result; said 1 call');
    expect(output).toContain('INCOMPLETE: redacted in turn 1: raw is not in the file');
    expect(output).toContain('not proven: anything of redacted turns');
    const opened = await transcript([...text.trimEnd().split('\n'), compact[3] ?? '']);
    expect([opened.code, opened.output]).toEqual([
      3,
      expect.stringContaining('turn 4  VALID  none  in no run\n  note  opened: it opens turn 2'),
    ]);
    const changed = text.replace(/"raw_sha256":"./, (found) => `${found.slice(0, -1)}${found.endsWith('0') ? 1 : 0}`);
    expect(await transcript(changed)).toMatchObject({
      code: 1,
      output: expect.stringContaining("the proof is not for raw's hash"),
    });
    expect(await command(out, '--redact', out)).toMatchObject({
      code: 2,
      output: expect.stringContaining('it is there already'),
    });
    expect(readFileSync(out, 'utf8')).toBe(text);
  });
});

describe('--html', () => {
  it('writes one page that runs and loads nothing, with every word as text', async () => {
    const out = join(folder.path, 'run.html');
    expect(await transcript(lines, '--html', out, '--quiet')).toEqual({ code: 0, output: '' });
    const page = readFileSync(out, 'utf8');
    expect(page).toContain('&lt;script&gt;alert(1)&lt;/script&gt; <i>U+202E</i>&amp; &quot;&lt;b&gt;&quot;');
    expect(page).not.toMatch(/<script|<img|<link|https?:/);
    expect(page).toContain('<span class="badge VALID">VALID</span> <span class="badge level">level none</span>');
    expect(page).toContain('continues <a href="#t1">turn 1</a>');
    expect(page).toContain('18 degrees in Wien');
    expect(statSync(out).mode & 0o077).toBe(0);
    expect([`${out}.part`, `${out}.whole`].map((file) => existsSync(file))).toEqual([false, false]);
  });
});

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { unsigned } from '../../../scripts/vectors/tokens.ts';
import { COMMANDS } from '../../../verify/cli/table.ts';
import { VERSION } from '../../../verify/common/version.ts';
import { answer, chatAnswer, chatStream } from '../../support/backend.ts';
import { commandLine } from '../../support/cli.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { namedStream, responseEvents } from '../../support/named-streams.ts';
import { startProcess } from '../../support/process.ts';
import { useService } from '../../support/service.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { AT, attest, attestInBatch, simulatedRoot } from '../maker.ts';

const CLI = fileURLToPath(new URL('../../../bin/countersign.js', import.meta.url));

const service = useService();
let root: string;

const file = (name: string, content: string | Buffer) => {
  const path = join(service.folder.path, name);
  writeFileSync(path, content);
  return path;
};

const run = commandLine();

/** As a process. */
function countersign(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, ...args], {
    encoding: 'utf8',
    cwd: service.folder.path,
  });
  return { status, stdout, stderr };
}

beforeAll(() => {
  root = join(service.folder.path, 'simulated-root', 'root.pem');
});

describe('countersign verify', () => {
  it('says valid with exit 0 to a saved response, an attestation and a saved transcript', async () => {
    service.backend.script = chatAnswer('Hello.');
    const request = JSON.stringify({ ...CHAT, tee: true });
    const whole = await chat(service.url, request);
    service.backend.script = chatStream(['Hel', 'lo']);
    const stream = await chat(service.url, { ...CHAT, tee: true, stream: true });
    const saved = file('response.json', whole.text);
    for (const args of [
      [saved, '--request', file('request.json', request)],
      [file('attestation.json', JSON.stringify(whole.json().attestation))],
      [file('stream.txt', stream.text)],
    ]) {
      const { status, stdout } = countersign('verify', ...args, '--allow-simulated', root, '--offline', '--verbose');
      expect([status, stdout]).toEqual([0, expect.stringMatching(/VALID \(level: none\)\n$/)]);
      expect(stdout).toContain('SIMULATED');
      expect(stdout).toContain('not proven');
    }
    const json = JSON.parse(run('verify', saved, '--allow-simulated', root, '--json').stdout);
    expect(Object.keys(json)).toEqual(['valid', 'incomplete', 'level', 'checks', 'claims', 'proven', 'not_proven']);
  });

  it('compares the endpoint, and says which one it was', async () => {
    for (const [endpoint, script, body] of [
      ['/v1/responses', namedStream(responseEvents(['Hel', 'lo'])), { input: 'Hi', stream: true }],
      ['/v1/embeddings', answer('{"object":"list","data":[]}'), { input: 'Hi' }],
    ] as const) {
      service.backend.script = script;
      const request = JSON.stringify({ ...body, tee: true });
      const saved = file('answer.txt', (await ask(service.url + endpoint, { body: request })).text);
      const verify = (...args: string[]) => run('verify', saved, '--allow-simulated', root, '--offline', ...args);
      const asked = verify('--endpoint', endpoint, '--request', file('request.json', request));
      expect([asked.status, asked.stdout]).toEqual([0, expect.stringContaining(`raw holds the endpoint ${endpoint}`)]);
      expect(verify().stdout).toContain(`; it is about ${endpoint}`);
      const other = verify('--endpoint', '/v1/chat/completions');
      expect([other.status, other.stdout]).toEqual([1, expect.stringContaining('INVALID: endpoint_mismatch')]);
    }
  });

  it('says invalid with exit 1 and names the check', async () => {
    service.backend.script = chatStream(['Hel', 'lo']);
    const stream = await chat(service.url, { ...CHAT, tee: true, stream: true });
    const changed = file('changed.txt', stream.text.replace('"Hel"', '"Hol"'));
    expect(countersign('verify', changed, '--allow-simulated', root)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('INVALID: stream_mismatch'),
    });
    const twice = file('twice.txt', stream.text.replace('"attestation":{', '$&"raw":"evil",'));
    expect(run('verify', twice, '--allow-simulated', root).stdout).toContain('INVALID: not_an_attestation');
    const second = file('second.txt', stream.text.replace(/\}(\n\ndata: \[DONE\])/, ',"attestation":{}}$1'));
    expect(run('verify', second, '--allow-simulated', root).stdout).toContain('INVALID: stream_mismatch');
    const good = file('good.txt', stream.text);
    expect(run('verify', good).stdout).toContain('INVALID: simulated_root_refused');
    const other = file('other.json', JSON.stringify({ ...CHAT, tee: true, stream: true, seed: 1 }));
    expect(run('verify', good, '--request', other, '--allow-simulated', root).stdout).toContain(
      'INVALID: request_mismatch',
    );
    expect(
      run('verify', good, '--allow-simulated', root, '--max-age', '1', '--at', '2100-01-01T00:00:00Z').stdout,
    ).toContain('INVALID: too_old');
    expect(run('verify', file('plain.txt', 'data: {"choices":[]}\n\ndata: [DONE]\n\n')).stdout).toContain(
      'INVALID: not_an_attestation',
    );
  });

  it('counts the values of a file before it parses it, and stops reading what has no end', () => {
    const many = file('many.json', `[${'{},'.repeat(9 * 2 ** 20)}{}]`);
    const { status, stdout } = spawnSync(
      process.execPath,
      ['--max-old-space-size=128', CLI, 'verify', many, '--json'],
      {
        encoding: 'utf8',
      },
    );
    expect([status, JSON.parse(stdout).checks[0]]).toMatchObject([1, { status: 'fail', code: 'too_large' }]);
    expect(run('verify', '/dev/zero')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('larger than 256 MiB'),
    });
  });

  it('says of how many answers a batched one is one, and refuses more than it is told to accept', async () => {
    const saved = file('batched.json', JSON.stringify(await attestInBatch(17, 5)));
    const given = ['--allow-simulated', file('test-root.pem', simulatedRoot), '--at', AT.toISOString(), '--offline'];
    const { status, stdout } = run('verify', saved, '--max-batch', '17', '--verbose', ...given);
    expect([status, stdout]).toEqual([
      0,
      expect.stringContaining('a nonce that commits to 17 answers, of which this is'),
    ]);
    expect(stdout).toContain('\n  batch     leaf 5 of the 17 under this nonce\n');
    const refused = run('verify', saved, '--max-batch', '16', ...given);
    expect([refused.status, refused.stdout]).toEqual([1, expect.stringContaining('INVALID: policy_refused')]);
    const { claims } = JSON.parse(run('verify', saved, '--json', ...given).stdout);
    expect(claims.batch).toEqual({ tree_size: 17, leaf_index: 5 });
  });

  it('demands level gpu of an answer, and more where other options name it', async () => {
    const saved = file('level.json', JSON.stringify(await attest()));
    const policy = (...args: string[]) =>
      /^ .* policy +(.*)$/m.exec(
        run('verify', saved, '--offline', '--verbose', '--at', AT.toISOString(), ...args).stdout,
      )?.[1];
    const simulated = ['--allow-simulated', file('test-root.pem', simulatedRoot)];
    expect(policy()).toContain('the level is none; the caller accepts gpu or more');
    expect(policy('--require-level', 'gpu+cpu')).toContain('accepts gpu+cpu or more');
    for (const args of [
      ['--product', 'Milan'],
      ['--tcb', 'UpToDate', ...simulated],
      ['--challenge', '00'.repeat(32), '--require-level', 'none'],
    ])
      expect(policy(...args)).toContain('requires the check cpu_form');
    expect(policy(...simulated, '--require-level', 'gpu')).toContain('accepts gpu or more');
    for (const args of [simulated, ['--require-level', 'none']])
      expect(policy(...args)).toBe('the caller asked for no more');
  });

  it('prints what a token says of itself in one line, whatever characters it is made of', async () => {
    const { raw, nonce } = await attest();
    for (const odd of ['\n', '\r', '\u001b[2J', '\u009b2J', '\u2028', '\u202e', '\u200b']) {
      const token = unsigned({ eat_nonce: nonce, iss: `x${odd}VALID (level: gpu)` });
      const { status, stdout } = run(
        ...['verify', file('odd.json', JSON.stringify({ raw, nonce, token })), '--offline', '--verbose'],
      );
      expect([status, stdout]).toEqual([1, expect.stringMatching(/says it is from 'x\?[^\n]*VALID \(level: gpu\)'\n/)]);
      expect(stdout).not.toMatch(/^VALID|[^\n\P{C}]|[\u2028\u2029]/mu);
    }
  });

  it.each([
    [[], /a FILE or a command is needed/],
    [['completion', 'tcsh'], /not one of bash, zsh, fish/],
    [['replay', 'x'], /--base-url URL/],
    [['replay', 'x', '--base-url', 'http://127.0.0.1', '--times', '101'], /--times 101/],
    [['evidence', 'x', '--session', 'y'], /evidence has no --session, which is of verify/],
    [['verify'], /a FILE is needed/],
    [['verify', 'nothing.json'], /no such file/],
    [['verify', 'a', 'b'], /one FILE at a time/],
    [['verify', 'x', '--nonsense'], /Unknown option '--nonsense'\n/],
    [['verify', 'x', '--at'], /'--at' needs an argument/],
    [['verify', 'x', '--request', '-', '--at', '--json'], /'--at' needs an argument/],
    [['verify', 'x', '--json=3'], /'--json' does not take an argument\n/],
    [['verify', 'x', '--at', 'yesterday'], /not a time/],
    [['verify', 'x', '--at', 'foo 7'], /not a time/],
    [['verify', 'x', '--at', '06/01/2025'], /not a time/],
    [['verify', 'x', '--at', '20250601'], /not a time/],
    [['verify', 'x', '--max-age', '-1'], /max-age/],
    [['verify', 'x', '--max-batch', '0'], /max-batch 0: not a number of answers/],
    [['verify', 'x', '--max-batch', '1.5'], /max-batch/],
    [['collateral', 'x'], /--into DIR/],
  ])('exits 2 with one clear line when it is used wrongly: %j', (args, message) => {
    const { status, stderr, stdout } = run(...args);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
  });

  it('exits 2 with one clear line for a file or folder that cannot be used', () => {
    const answer = file('answer.json', '{}');
    const rims = join(service.folder.path, 'rims');
    mkdirSync(rims, { recursive: true });
    symlinkSync(join(service.folder.path, 'gone.xml'), join(rims, 'dangling.xml'));
    for (const [args, message] of [
      [['verify', answer, '--allow-simulated', answer], 'not a PEM certificate'],
      [['evidence', answer, '--request', answer], 'which is of verify'],
      [['evidence', answer, '--endpoint', '/v1/messages'], 'which is of verify'],
      [['verify', answer, '--endpoint', '/messages'], 'not a path under /v1/'],
      [['verify', answer, '--endpoint', '/v1/messages?a=1'], 'not a path under /v1/'],
      [['verify', answer, '--endpoint', '/v1/messages\n'], 'not a path under /v1/'],
      [['evidence', answer, '--response', answer], 'which is of verify'],
      [['verify', answer, '--allow-simulated', service.folder.path], 'a folder, not a file'],
      [['verify', answer, '--request', join(service.folder.path, 'gone.json')], 'no such file or folder'],
      [['verify', answer, '--rim-dir', rims], 'no such file or folder'],
      [['verify', answer, '--rim-dir', answer], 'cannot be used (ENOTDIR)'],
      [['verify', answer, '--collateral', rims], 'no such file or folder'],
      [['verify', answer, '--rim-url', 'rim.test'], 'not an http(s) URL'],
      [['collateral', answer, '--into', answer], 'cannot be used (ENOTDIR)'],
    ] as const) {
      const { status, stdout, stderr } = run(...args, ...(args[0] === 'verify' ? ['--offline'] : []));
      expect([status, stdout]).toEqual([2, '']);
      expect(stderr).toMatch(/^countersign: [^\n]+\n(see --help|next: [^\n]+)\n$/);
      expect(stderr).toContain(message);
    }
  });

  it('exits 2 for a file that is not UTF-8, whatever it is', async () => {
    service.backend.script = chatAnswer('Hello \ufffd.');
    const request = JSON.stringify({ ...CHAT, tee: true });
    const { text } = await chat(service.url, request);
    const saved = file('fffd.json', text);
    const broken = (name: string, good: string) =>
      file(name, Buffer.from(Buffer.from(good).toString('latin1').replace('\u00ef\u00bf\u00bd', '\u00ff'), 'latin1'));
    const response = text.replace(/,"attestation":.*\}$/s, '}');
    const rooted = ['--allow-simulated', root, '--offline'];
    expect(run('verify', saved, '--response', file('received.json', response), ...rooted).status).toBe(0);
    for (const [args, name] of [
      [[broken('whole.bad', text)], 'whole.bad'],
      [[broken('stream.bad', `data: ${text}\n\n`)], 'stream.bad'],
      [[saved, '--response', broken('response.bad', response)], 'response.bad'],
      [[saved, '--request', broken('request.bad', '{"a":"\ufffd"}')], 'request.bad'],
    ] as const) {
      const { status, stdout, stderr } = run('verify', ...args, ...rooted);
      expect([status, stdout, stderr]).toEqual([
        2,
        '',
        `countersign: ${join(service.folder.path, name)}: not a text in UTF-8\nnext: save the answer as it came, byte for byte (curl … > FILE)\n`,
      ]);
    }
  });

  it('tells how it is used', () => {
    const { status, stdout } = run('--help');
    expect(status).toBe(0);
    for (const { name, text } of COMMANDS) expect(stdout).toMatch(new RegExp(`^  ${name} .*${text.slice(0, 20)}`, 'm'));
    for (const { name, options, examples } of COMMANDS) {
      const help = run(name, '--help');
      expect(help.status).toBe(0);
      for (const option of options) expect(help.stdout).toMatch(new RegExp(`^  --${option.name}( |$)`, 'm'));
      for (const example of examples) expect(help.stdout).toContain(example);
    }
    expect(countersign('--version')).toMatchObject({ status: 0, stdout: `${VERSION}\n` });
  });

  it.skipIf(!vectorsPresent)('checks bare evidence, one device or several, and wants every one right', () => {
    const [device] = JSON.parse(vector('nvidia/h100-590.12/evidence.json').toString());
    const without = ['--without-reference-values', '--without-revocation', '--offline'];
    const one = file('evidence.json', JSON.stringify([device]));
    expect(run('evidence', one, ...without)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('\nPASSED: evidence of devices, about no answer (level: gpu)\n'),
    });
    expect(run('evidence', one, '--offline')).toMatchObject({
      status: 3,
      stdout: expect.stringMatching(
        /\nINCOMPLETE: \w+_unavailable: [^\n]*; nothing was found wrong\nnext: [^\n]*collateral/,
      ),
    });
    const nonce = file('nonce.json', JSON.stringify([{ ...device, nonce: '00'.repeat(32) }]));
    expect(run('evidence', nonce, ...without).stdout).toContain('INVALID: report_nonce_mismatch');
    const chain = vector('nvidia/h100-535.86.09/chain.pem').toString('base64');
    const broken = Buffer.from(vector('nvidia/h100-535.86.09/report-invalid-signature.hex').toString().trim(), 'hex');
    const second = {
      arch: 'HOPPER',
      certificate: chain,
      evidence: broken.toString('base64'),
      nonce: broken.subarray(4, 36).toString('hex'),
    };
    const both = run('evidence', file('both.json', JSON.stringify([device, second])), ...without);
    expect([both.status, both.stdout]).toEqual([1, expect.stringContaining('INVALID: report_signature_invalid')]);
  });
});

describe.skipIf(!vectorsPresent)('countersign collateral', () => {
  it('fills a folder with what a later check needs offline', async () => {
    const rims = new Map([
      ['NV_GPU_DRIVER_GH100_550.90.07', vector('nvidia/h100-550.90.07/NV_GPU_DRIVER_GH100_550.90.07.xml')],
      [
        'NV_GPU_VBIOS_1010_0200_882_96009F0001',
        vector('nvidia/h100-550.90.07/NV_GPU_VBIOS_1010_0200_882_96009F0001.xml'),
      ],
    ]);
    const nvidia = createServer((request, response) => {
      const rim = rims.get(decodeURIComponent(request.url?.split('/').at(-1) ?? ''));
      if (rim === undefined) response.writeHead(404).end();
      else response.end(JSON.stringify({ rim: rim.toString('base64') }));
    });
    await new Promise<void>((resolve) => nvidia.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(nvidia.address() as AddressInfo).port}`;
    const report = vector('nvidia/h100-550.90.07/report.bin');
    const evidence = file(
      'h100.json',
      JSON.stringify([
        {
          arch: 'HOPPER',
          certificate: vector('nvidia/h100-550.90.07/chain.pem').toString('base64'),
          evidence: report.toString('base64'),
          nonce: report.subarray(4, 36).toString('hex'),
        },
      ]),
    );
    const into = join(service.folder.path, 'collateral');
    mkdirSync(into);
    const common = ['--without-revocation', '--at', '2025-09-01T00:00:00Z'];
    // Not spawnSync: the service it asks lives in this process.
    const child = startProcess('auditor/main.ts', [
      'collateral',
      evidence,
      '--into',
      into,
      '--rim-url',
      url,
      ...common,
    ]);
    expect([(await child.exited).code, child.output()]).toEqual([0, expect.stringContaining('2 files')]);
    nvidia.close();
    expect(readdirSync(join(into, 'rim')).sort()).toEqual([...rims.keys()].map((id) => `${id}.xml`));
    const offline = run('evidence', evidence, '--offline', '--verbose', '--collateral', into, ...common);
    expect([offline.status, offline.stdout]).toEqual([0, expect.stringContaining('all 33 active measurements')]);
    const fromDir = run('evidence', evidence, '--offline', '--rim-dir', join(into, 'rim'), ...common);
    expect(fromDir.status).toBe(0);
  });
});

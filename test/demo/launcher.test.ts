import { statSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatStream, startBackend } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually, type Folder, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';

let folder: Folder;
let port: number;
let launcher: RunningProcess;

beforeEach(async () => {
  folder = temporaryFolder();
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  port = (probe.address() as AddressInfo).port;
  await new Promise((resolve) => probe.close(resolve));
});
afterEach(async () => {
  if (launcher.child.exitCode === null && launcher.child.signalCode === null) await launcher.kill('SIGTERM');
  folder.remove();
});

function start(more: Record<string, string> = {}): RunningProcess {
  const simulated = more.ATTESTER === undefined;
  return startProcess('demo/main.ts', simulated ? ['--root-dir', join(folder.path, 'root')] : [], {
    PORT: String(port),
    SIDECAR_SOCKET: join(folder.path, 'run', 'sidecar.sock'),
    ...more,
  });
}

const answers = () =>
  ask(`http://127.0.0.1:${port}/health`, { method: 'GET' }).then(
    () => true,
    () => false,
  );

describe('npm start', () => {
  it('says what runs, prints a curl that works, and keeps the socket in a folder of its own mode', async () => {
    launcher = start();
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    const output = launcher.output();
    expect(output).toContain('SIMULATED');
    expect(output).toContain('nonsense');
    const page = await ask(/page +(\S+)/.exec(output)?.[1] ?? '', { method: 'GET' });
    expect([page.status, page.text.includes('<title>Countersign</title>')]).toEqual([200, true]);
    const body = /-d '([^']+)'/.exec(output)?.[1] ?? '';
    const url = /curl -s (\S+)/.exec(output)?.[1] ?? '';
    const answer = await ask(url, { body });
    expect([answer.status, typeof answer.json().attestation.nonce]).toEqual([200, 'string']);
    const verdict = await ask(`http://127.0.0.1:${port}/~sev_gpu@1.0/verify`, { body: answer.text });
    expect(verdict.text).toBe('true');
    expect((statSync(join(folder.path, 'run')).mode & 0o777).toString(8)).toBe('750');
  }, 30_000);

  it('says step by step what it does, and at last what to try and how to end it', async () => {
    launcher = start();
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    const lines = [
      'Countersign: the whole service on this machine',
      'starting demo engine, sidecar and gateway',
      '  demo engine  runs, its model is countersign-demo\n',
      `  gateway      listens on http://127.0.0.1:${port}\n`,
      '  sidecar      attests with a simulated GPU\n',
      'ready in ',
      'SIMULATED',
      'Try it:\n',
      `  page       http://127.0.0.1:${port}/\n`,
      '  engine     http://127.0.0.1:',
      `curl -s http://127.0.0.1:${port}/v1/chat/completions`,
      'Ctrl-C ends everything.\n',
    ];
    const places = lines.map((line) => launcher.output().indexOf(line));
    expect(places[0]).toBe(0);
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(places).not.toContain(-1);
    await launcher.kill('SIGINT');
    // Its last line may arrive after its exit: both streams end once every process that writes to them has ended.
    const { stdout, stderr } = launcher.child;
    await eventually(() => stdout?.readableEnded === true && stderr?.readableEnded === true);
    // Nothing but these lines: no log line of an ordinary start and stop. A stop of more than half a second is announced.
    expect(launcher.output()).toMatch(
      /Ctrl-C ends everything\.\n(stopping: running answers have 25 s .*\n)?stopped\n$/,
    );
    expect(launcher.output()).not.toContain('{"level"');
  }, 30_000);

  it('names no demo engine where the backend is another', async () => {
    const backend = await startBackend();
    launcher = start({ BACKEND_URL: backend.url });
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    expect(launcher.output()).toContain('\nstarting sidecar and gateway …\n');
    expect(launcher.output()).not.toContain('demo engine');
    await backend.close();
  }, 30_000);

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGKILL'] as const)(
    'leaves nothing behind after %s',
    async (signal) => {
      launcher = start();
      await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
      await launcher.kill(signal);
      await eventually(async () => !(await answers()), 8_000);
      await eventually(() => !isThere(join(folder.path, 'run', 'sidecar.sock')), 8_000);
    },
    40_000,
  );

  it('lets running answers end, with their proof, for as long as the gateway may take', async () => {
    const backend = await startBackend();
    launcher = start({ BACKEND_URL: backend.url });
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    backend.script = chatStream(Array(75).fill('word '), 100);
    const asked = [false, true].map((tee) => chat(`http://127.0.0.1:${port}`, { ...CHAT, stream: true, tee }));
    await eventually(() => backend.seen.filter(({ url }) => url.endsWith('/completions')).length === 2);
    // As a terminal and npm send it: twice, to us.
    launcher.child.kill('SIGINT');
    launcher.child.kill('SIGINT');
    const [plain, tee] = await Promise.all(asked);
    expect([plain?.complete, plain?.payloads().at(-1)]).toEqual([true, '[DONE]']);
    expect(tee?.text).toContain('"attestation":{');
    expect(await launcher.exited).toEqual({ code: 0, signal: null });
    expect(launcher.output()).toContain('stopping: running answers have 25 s to end; Ctrl-C again ends them at once');
    await backend.close();
  }, 40_000);

  it.each(['Countersign: ', 'starting '])(
    'ends in order when it is told so before it is ready, after "%s"',
    async (line) => {
      launcher = start();
      await eventually(() => launcher.output().includes(line));
      expect(await launcher.kill('SIGTERM')).toEqual({ code: 0, signal: null });
      expect(launcher.output()).not.toContain('ready');
    },
    20_000,
  );

  it('ends at once on a second signal', async () => {
    const backend = await startBackend();
    launcher = start({ BACKEND_URL: backend.url });
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    backend.script = chatStream(Array(200).fill('word '), 100);
    const asked = chat(`http://127.0.0.1:${port}`, { ...CHAT, stream: true }).catch(() => null);
    await eventually(() => backend.seen.some(({ url }) => url.endsWith('/completions')));
    launcher.child.kill('SIGTERM');
    await eventually(() => launcher.output().includes('stopping: '));
    const began = performance.now();
    await launcher.kill('SIGTERM');
    await asked;
    expect(performance.now() - began).toBeLessThan(2_000);
    await eventually(async () => !(await answers()), 2_000);
    await backend.close();
  }, 40_000);

  it('serves without tee where the sidecar cannot attest, says why in one line, and prints a curl that works', async () => {
    // No driver's library, whatever this machine has.
    writeFileSync(join(folder.path, 'libnvidia-ml.so.1'), '');
    launcher = start({
      ATTESTER: 'native',
      LD_LIBRARY_PATH: folder.path,
      COLLATERAL_DIR: join(folder.path, 'collateral'),
    });
    await eventually(() => launcher.output().includes('Ctrl-C ends everything.'), 20_000);
    expect(launcher.output()).toContain('\n  sidecar      runs, but cannot attest\n');
    expect(launcher.output()).toMatch(/^ {2}Requests with tee are REFUSED: the sidecar cannot attest: \S.*$/m);
    const body = /-d '([^']+)'/.exec(launcher.output())?.[1] ?? '';
    expect((await chat(`http://127.0.0.1:${port}`, body)).status).toBe(200);
    expect((await chat(`http://127.0.0.1:${port}`, { ...CHAT, tee: true })).status).toBe(503);
  }, 40_000);

  it('says in one line that its port is taken, and greets nobody', async () => {
    const squatter = createServer();
    await new Promise<void>((resolve) => squatter.listen(port, '127.0.0.1', resolve));
    launcher = start();
    expect((await launcher.exited).code).toBe(1);
    expect(launcher.output()).toMatch(
      /^countersign: cannot listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\): another program listens there; beside it: PORT=(\d+) SIDECAR_SOCKET=run\/sidecar-\1\.sock npm start$/m,
    );
    expect(launcher.output()).not.toContain('ready');
    squatter.close();
  }, 20_000);
});

function isThere(path: string): boolean {
  try {
    statSync(path);
    return true;
  } catch {
    return false;
  }
}

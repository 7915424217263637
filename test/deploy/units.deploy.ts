import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Backend, startBackend } from '../support/backend.ts';
import { type Answer, ask, CHAT } from '../support/client.ts';
import { eventually, type Folder, freePort, temporaryFolder } from '../support/harness.ts';
import { GPU, type Machine, startMachine, whyNoMachine } from './machine.ts';

const why = whyNoMachine();
if (why !== null) console.warn(`SKIPPED: the units under a systemd of their own: ${why}`);

const KEY = 'a-key-of-the-test-0123456789abcdef';
const SOCKET = '/run/countersign/sidecar.sock';
const EVERY_MS = 50;

describe.skipIf(why !== null)('the units under systemd', () => {
  let folder: Folder;
  let backend: Backend;
  let machine: Machine;
  let url: string;
  const health = async () => (await ask(`${url}/health`, { method: 'GET' })).json();
  const chat = (tee: boolean) =>
    ask(`${url}/v1/chat/completions`, {
      headers: { authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ ...CHAT, tee }),
    });
  const pidOf = (unit: string) => machine.run('systemctl', 'show', '--property=MainPID', '--value', unit);

  beforeAll(async () => {
    folder = temporaryFolder();
    backend = await startBackend();
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    machine = await startMachine(folder, {
      gateway: [`PORT=${port}`, `BACKEND_URL=${backend.url}`, 'ALLOW_SIMULATED=1', 'CANARY_INTERVAL_MS=0'],
      sidecar: [],
      keys: [KEY],
    });
    await eventually(
      () =>
        health()
          .then(({ status }) => status === 'ok')
          .catch(() => false),
      20_000,
    ).catch((cause) => {
      throw new Error(`not healthy\n${machine.log('gateway')}\n${machine.log('sidecar')}`, { cause });
    });
  });
  afterAll(async () => {
    await machine?.stop();
    await backend?.close();
    folder?.remove();
  });

  it('answer with an attestation, the sidecar on the socket that systemd holds', async () => {
    const answer = await chat(true);
    expect([answer.status, typeof answer.json().attestation.nonce]).toEqual([200, 'string']);
    expect(machine.log('sidecar')).toContain('"socket":"inherited"');
  });

  it.each(['sidecar', 'gateway'])('run the %s without root, capabilities or new privileges', async (name) => {
    const status = await machine.run('cat', `/proc/${await pidOf(`countersign-${name}`)}/status`);
    const line = (key: string) => new RegExp(`^${key}:\\s+(\\S+)`, 'm').exec(status)?.[1];
    expect([line('Uid'), line('Gid')]).toEqual([name === 'sidecar' ? '10001' : '10002', '10000']);
    expect([line('CapEff'), line('CapBnd')]).toEqual(['0000000000000000', '0000000000000000']);
    expect([line('NoNewPrivs'), line('Seccomp')]).toEqual(['1', '2']);
  });

  it.each(['sidecar', 'gateway'])('give the %s a file system that it cannot write', async (name) => {
    const pid = await pidOf(`countersign-${name}`);
    const user = name === 'sidecar' ? '10001' : '10002';
    const write = (path: string) =>
      machine
        .run(
          'nsenter',
          '-t',
          pid,
          '-m',
          'setpriv',
          '--reuid',
          user,
          '--regid',
          '10000',
          '--clear-groups',
          'touch',
          path,
        )
        .then(
          () => 'written',
          (error: Error) => /Read-only|Permission/.exec(error.message)?.[0],
        );
    expect(await write('/etc/x')).toBe('Read-only');
    expect(await write('/opt/countersign/x')).toBe('Read-only');
    expect(await write('/run/countersign/x')).toBe(name === 'sidecar' ? 'Read-only' : 'Permission');
    expect(await write('/tmp/x')).toBe('written');
    expect(await write('/var/lib/countersign-sidecar/x')).toBe(name === 'sidecar' ? 'written' : 'Permission');
    // For its audit log.
    expect(await write('/var/log/countersign/x')).toBe(name === 'gateway' ? 'written' : 'Permission');
  });

  it('open the socket to the group, and to nobody else', async () => {
    const connect = (user: string, group: string) =>
      machine.run(
        ...['setpriv', '--reuid', user, '--regid', group, '--clear-groups', '/usr/bin/node', '-e'],
        `require('net').connect('${SOCKET}').on('connect', () => { console.log('connected'); process.exit() }).on('error', (e) => console.log(e.code))`,
      );
    expect(await connect('10002', '10000')).toBe('connected');
    expect(await connect('65534', '65534')).toBe('EACCES');
    // Not even somebody else's folder can be looked into.
    expect(await machine.run('stat', '-c', '%a %U %G', '/run/countersign', SOCKET)).toBe(
      '2750 root countersign\n660 root countersign',
    );
  });

  it('leave the sidecar no network where its attester needs none', async () => {
    const pid = await pidOf('countersign-sidecar');
    expect(await machine.run('nsenter', '-t', pid, '-n', 'cat', '/proc/net/route')).not.toMatch(/\n./);
    expect(await machine.run('readlink', `/proc/${pid}/ns/net`)).not.toBe(
      await machine.run('readlink', '/proc/1/ns/net'),
    );
  });

  it('lose no request with tee while the sidecar is killed and restarted alone, 20 a second', async () => {
    const asked: Promise<Answer>[] = [];
    const timer = setInterval(() => asked.push(chat(true)), EVERY_MS);
    const gateway = await pidOf('countersign-gateway');
    const pause = () => new Promise((resolve) => setTimeout(resolve, 1_500));
    const back: number[] = [];
    for (const how of [
      ['kill', '--kill-whom=main', '--signal=SIGKILL'],
      ['restart'],
      ['kill', '--kill-whom=main', '--signal=SIGTERM'],
    ]) {
      await pause();
      const before = await pidOf('countersign-sidecar');
      const at = performance.now();
      await machine.run('systemctl', ...how, 'countersign-sidecar.service');
      await eventually(async () => !['0', before].includes(await pidOf('countersign-sidecar')), 10_000);
      const answer = await chat(true);
      expect(answer.status).toBe(200);
      back.push(Math.round(performance.now() - at));
    }
    await pause();
    clearInterval(timer);
    const answers = await Promise.all(asked);
    const failed = answers.filter((one) => one.status !== 200 || typeof one.json().attestation?.nonce !== 'string');
    console.log(
      `${answers.length} requests with tee, ${failed.length} failed; attesting again after ${back.join(', ')} ms`,
    );
    expect(failed.map((one) => one.text)).toEqual([]);
    expect(answers.length).toBeGreaterThan(100);
    expect(await pidOf('countersign-gateway')).toBe(gateway);
  });

  describe('set the GPUs ready', () => {
    const start = () =>
      machine.run('systemctl', 'start', 'countersign-ready').then(
        () => 'started',
        () => 'failed',
      );
    const areReady = () =>
      machine.run('test', '-e', `${GPU}/ready`).then(
        () => true,
        () => false,
      );
    const reboot = async () => {
      await machine.run('systemctl', 'stop', 'countersign-ready');
      await machine.run('rm', '-f', `${GPU}/ready`);
    };

    it('after an attestation that verifies', async () => {
      expect([await start(), await areReady()]).toEqual(['started', true]);
      expect(machine.log('ready')).toMatch(
        /^ok {4}trial .*\n(.*\n)*ready: the GPUs accept work: an attestation verifies$/m,
      );
    });

    it('not before, and at once when the sidecar attests again', async () => {
      await reboot();
      await machine.run('systemctl', 'stop', 'countersign-sidecar');
      await machine.run('chmod', '000', '/var/lib/countersign-sidecar/simulated-root');
      expect([await start(), await areReady()]).toEqual(['failed', false]);
      expect(machine.log('ready')).toContain('ready: the GPUs stay as they are and accept no work');
      await machine.run('chmod', '700', '/var/lib/countersign-sidecar/simulated-root');
      expect((await chat(true)).status).toBe(200);
      expect([await start(), await areReady()]).toEqual(['started', true]);
    });

    it('unattested only where the operator says so, and then say so', async () => {
      await reboot();
      await machine.run('systemctl', 'stop', 'countersign-sidecar');
      await machine.run('chmod', '000', '/var/lib/countersign-sidecar/simulated-root');
      await machine.run('sh', '-c', 'echo READY_WITHOUT_ATTESTATION=1 >/etc/countersign/ready.env');
      try {
        expect([await start(), await areReady()]).toEqual(['started', true]);
        expect(machine.log('ready')).toMatch(/^ready: WARNING: .* UNATTESTED/m);
      } finally {
        await machine.run('rm', '/etc/countersign/ready.env');
        await machine.run('chmod', '700', '/var/lib/countersign-sidecar/simulated-root');
      }
      expect((await chat(true)).status).toBe(200);
    });
  });

  it("hold NVIDIA's units back until the GPU is held, and where it cannot be", async () => {
    const started = (unit: string) =>
      machine.run('systemctl', 'start', unit).then(
        () => true,
        () => false,
      );
    const boot = () =>
      machine.run('sh', '-c', `systemctl stop nvidia-persistenced; systemctl reset-failed; rm -f ${GPU}/held`);
    for (const unit of ['nvidia-cdi-refresh', 'nvidia-dcgm']) {
      await boot();
      await machine.run('touch', `${GPU}/no-driver`);
      expect([unit, await started(unit)]).toEqual([unit, false]);
      await machine.run('rm', `${GPU}/no-driver`);
      await boot();
      expect([unit, await started(unit)]).toEqual([unit, true]);
      await machine.run('test', '-e', `${GPU}/${unit}`);
    }
  });

  it('serve requests without tee while the sidecar and its socket are stopped, and tee again after', async () => {
    await machine.run('systemctl', 'stop', 'countersign-sidecar.socket', 'countersign-sidecar.service');
    expect([(await chat(false)).status, (await health()).status]).toEqual([200, 'degraded']);
    await machine.run('systemctl', 'start', 'countersign-sidecar.socket');
    expect((await chat(true)).status).toBe(200);
  });

  it('fetch the weights as the user that serves them, at the revision that is served', async () => {
    // vLLM's environment, with a hub that fetches one file and an engine that reads it.
    const hub =
      'import os\ndef snapshot_download(model, revision):\n  p = os.environ["HF_HOME"]\n  os.makedirs(p)\n  open(p + "/weights", "w").write(model + "@" + revision)\n  return p';
    const engine =
      '#!/opt/vllm/bin/python3\nimport os, sys\nprint(open(os.environ["HF_HOME"] + "/weights").read(), *sys.argv[1:])';
    const write = (path: string, text: string) => machine.run('sh', '-c', 'printf "%s\\n" "$1" >"$2"', '-', text, path);
    await machine.run('/usr/bin/python3', '-m', 'venv', '--without-pip', '/opt/vllm');
    await write('/opt/vllm/bin/vllm', engine);
    await machine.run('sh', '-c', 'chmod 755 /opt/vllm/bin/vllm');
    const [packages] = (await machine.run('sh', '-c', 'echo /opt/vllm/lib/python3*/site-packages')).split(' ');
    await write(`${packages}/huggingface_hub.py`, hub);
    await write(
      '/etc/countersign/backend.env',
      'MODEL=org/model\nMODEL_REVISION=abc123\nVLLM_FLAGS=--max-model-len 32768',
    );
    await machine.run('systemctl', 'start', 'countersign-model').catch((cause) => {
      throw new Error(machine.log('model'), { cause });
    });
    await machine.run('systemctl', 'start', '--no-block', 'countersign-backend');
    await eventually(() => machine.log('backend') !== '', 10_000);
    await machine.run('systemctl', 'stop', 'countersign-backend');
    expect(machine.log('backend').split('\n')[0]).toBe(
      'org/model@abc123 serve org/model --revision abc123 --host 127.0.0.1 --port 8000 --no-enable-log-requests --max-model-len 32768',
    );
    // Nobody else reads them, and they are not root's.
    const owner = await machine.run('stat', '-Lc', '%u %a', '/var/lib/countersign-backend/huggingface');
    expect(owner).toMatch(/^6\d{4} 700$/);
  });

  it('keep no line of what was said', async () => {
    expect(machine.log('gateway') + machine.log('sidecar')).not.toContain(CHAT.messages[0]?.content ?? '');
  });
});

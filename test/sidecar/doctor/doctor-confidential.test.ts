// What bites on nodes in confidential mode, made on purpose: the doctor names it and what to do.
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { exitCode } from '../../../sidecar/doctor/finding.ts';
import { checkBackend } from '../../../sidecar/doctor/gateway-check.ts';
import { type Host, thisHost } from '../../../sidecar/doctor/host.ts';
import { createNvml } from '../../../sidecar/driver/nvml.ts';
import {
  CRYPTO,
  config,
  errno,
  facts,
  health,
  holding,
  look,
  mode,
  type NvmlFacts,
  names,
  node,
  noNvml,
  printed,
} from './doctor-node.ts';

type NvmlLibrary = Parameters<typeof createNvml>[0];

const told = (change: Partial<NvmlFacts>) => ({ nvml: async () => ({ ...facts, ...change }) });

describe('the driver', () => {
  test.each(['550.90.07', '570.124.06', '575.57.08'])(
    '%s is older than CUDA 13: a warning, with the image',
    async (driver) => {
      const { bad, findings } = await look(told({ driver }));
      expect(names(bad)).toEqual(['driver warn']);
      expect(bad[0]).toMatchObject({
        seen: expect.stringContaining('CUDA 13'),
        todo: expect.stringContaining('VLLM_IMAGE'),
      });
      expect(exitCode(findings)).toBe(0);
    },
  );

  test.each(['580.65.06', '595.84'])('%s is not', async (driver) => {
    expect((await look(told({ driver }))).of('driver').status).toBe('ok');
  });

  test('without persistence mode loses the session: a warning', async () => {
    const { bad } = await look(told({ persistence: false }));
    expect(names(bad)).toEqual(['persistence warn']);
    expect(bad[0]?.todo).toContain('--uvm-persistence-mode');
    expect((await look(told({ persistence: null }))).of('persistence').status).toBe('skip');
  });

  test.each([
    [1, true],
    [0, false],
  ])('tells of persistence by NVML: %i', async (answer, expected) => {
    const call: NvmlLibrary['call'] = async (name, handle, out) => {
      if (name !== 'nvmlDeviceGetPersistenceMode' || handle !== 7n) return 13;
      (out as Buffer).writeUInt32LE(answer);
      return 0;
    };
    expect(await createNvml({ call }).persistence(7n)).toBe(expected);
    await expect(createNvml({ call }).persistence(8n)).rejects.toThrow('nvmlDeviceGetPersistenceMode');
  });

  test.each([
    ['Enabled', 'ok'],
    ['Disabled', 'warn'],
    ['[N/A]', 'skip'],
  ])('tells of persistence by nvidia-smi as well: %s', async (says, status) => {
    const run: Host['run'] = async (program, args) => {
      if (program !== 'nvidia-smi') return null;
      expect([args[0], 'conf-compute']).toContain(args[0]);
      return printed(
        args[0] === 'conf-compute' ? '' : `580.65.06, ${says}, NVIDIA H100\n580.65.06, Enabled, NVIDIA H100\n`,
      );
    };
    const { of } = await look({ nvml: noNvml, run });
    expect(of('persistence').status).toBe(status);
    expect(of('gpus').seen).toContain('NVIDIA H100 (HOPPER), NVIDIA H100 (HOPPER)');
  });
});

describe('the cryptography that the driver needs', () => {
  const LINE =
    'install nvidia /sbin/modprobe ecdsa_generic; /sbin/modprobe ecdh; /sbin/modprobe --ignore-install nvidia';
  const without = CRYPTO.replaceAll('nist-p384', 'nist-p256');
  /** As it goes without: the driver is loaded and sees no GPU. */
  const unseen = told({ gpus: [] });
  const modprobe = (text: string): Partial<Host> => ({
    ...unseen,
    readText: holding({ '/proc/crypto': without, '/etc/modprobe.d/nvidia-lkca.conf': text }),
    list: async (folder) =>
      folder === '/etc/modprobe.d' ? ['a.conf.bak', 'nvidia-lkca.conf'] : ['nvidia0', 'nvidiactl'],
  });

  test('built in or loaded is well, whatever modprobe has', async () => {
    const builtIn = CRYPTO.replaceAll(/module {7}: ecd.*/g, 'module       : kernel');
    expect((await look({ readText: holding({ '/proc/crypto': builtIn }) })).of('lkca').status).toBe('ok');
  });

  test('missing, and loaded by nothing: the line to write', async () => {
    const { bad } = await look({ ...unseen, readText: holding({ '/proc/crypto': without }) });
    expect(names(bad)).toEqual(['gpus fail', 'lkca warn']);
    expect(bad[1]?.seen).toBe(
      'the kernel has no ecdsa-nist-p384 and no ecdh-nist-p384, which the driver needs in confidential mode, and nothing in /etc/modprobe.d loads it before',
    );
    expect(bad[1]?.todo).toContain(`echo '${LINE}' > /etc/modprobe.d/nvidia-lkca.conf`);
  });

  test('one of the two is missing', async () => {
    const { of } = await look({
      ...unseen,
      readText: holding({ '/proc/crypto': CRYPTO.replace('ecdh-nist-p384\n', 'ecdh\n') }),
    });
    expect(of('lkca')).toMatchObject({
      status: 'warn',
      seen: expect.stringMatching(/^the kernel has no ecdh-nist-p384,/),
    });
  });

  test.each([
    ['an empty file', '', 'warn', /nothing in \/etc\/modprobe\.d/],
    ['a comment', `# ${LINE}\n`, 'warn', /nothing in \/etc\/modprobe\.d/],
    ['the line', `# LKCA\n${LINE}\n`, 'warn', /driver was loaded without/],
  ])('and the file has %s', async (_, text, status, seen) => {
    expect((await look(modprobe(text))).of('lkca')).toMatchObject({ status, seen: expect.stringMatching(seen) });
  });

  test('to be loaded with a driver that is not loaded yet is well', async () => {
    const { of } = await look({
      ...modprobe(LINE),
      nvml: noNvml,
      readText: holding({
        '/proc/crypto': without,
        '/etc/modprobe.d/nvidia-lkca.conf': LINE,
        '/proc/driver/nvidia/version': null,
      }),
    });
    expect(of('driver').status).toBe('fail');
    expect(of('lkca').status).toBe('ok');
  });

  test('is looked up on the node where we are in a container, whose files are its own', async () => {
    const { of } = await look({
      ...modprobe(LINE),
      kind: async (path) =>
        path === '/.dockerenv'
          ? 'file'
          : path === '/dev/nvidiactl'
            ? 'device'
            : path === '/run/countersign'
              ? 'folder'
              : null,
    });
    expect(of('container').seen).toContain('none of its files');
    expect(of('lkca')).toMatchObject({ status: 'warn', todo: expect.stringMatching(/^on the node, as root/) });
  });

  test.each([mode, { ...mode, confidential: false, multi_gpu: 'protected_pcie' as const }])(
    'missing, where the driver has its session all the same, is left alone: %j',
    async (now) => {
      const { of } = await look({ ...told({ mode: now }), readText: holding({ '/proc/crypto': without }) });
      expect(of('lkca')).toMatchObject({ status: 'skip', seen: expect.stringContaining('all the same') });
    },
  );

  test('missing before confidential mode is switched on: a warning', async () => {
    const { of } = await look({
      ...told({ mode: { ...mode, confidential: false } }),
      readText: holding({ '/proc/crypto': without }),
    });
    expect(of('lkca').status).toBe('warn');
  });

  test('cannot be told without /proc/crypto', async () => {
    expect((await look({ readText: holding({ '/proc/crypto': null }) })).of('lkca').status).toBe('skip');
  });
});

describe('what sets the GPUs ready at the start of the machine', () => {
  const UNITS = '/etc/systemd/system';
  const DROP_IN = `${UNITS}/nvidia-persistenced.service.d/override.conf`;
  const UNIT = `${UNITS}/ready.service`;
  const SRS = '/usr/bin/nvidia-smi conf-compute -srs 1';
  const folders: Readonly<Record<string, readonly string[]>> = {
    [UNITS]: ['nvidia-persistenced.service.d', 'ready.service', 'multi-user.target.wants'],
    [`${UNITS}/nvidia-persistenced.service.d`]: ['override.conf', 'override.conf.old'],
    '/dev': ['nvidia0', 'nvidiactl'],
  };
  const machine = (files: Readonly<Record<string, string>>): Partial<Host> => ({
    list: async (folder) => folders[folder] ?? [],
    readText: holding(files),
  });

  test.each([
    ["Azure's drop-in", DROP_IN, `[Service]\nExecStart=\nExecStartPost=-${SRS}\n`],
    ['a script of the start', '/etc/rc.local', `#!/bin/bash\nnvidia-smi -pm 1\n${SRS}\n`],
    ['a unit of its own', UNIT, `[Service]\nExecStart=nvidia-smi conf-compute --set-gpus-ready-state=1\n`],
  ])('before anything attested is found, with how to take it out: %s', async (_, path, text) => {
    const { of, findings } = await look(machine({ [path]: text }));
    expect(of('ready_gate')).toMatchObject({
      status: 'warn',
      seen: `${path} sets the GPUs ready at each start, before anything attested`,
      todo: expect.stringContaining(`sed -i '/conf-compute.*-srs/d' ${path} && systemctl daemon-reload`),
    });
    expect(exitCode(findings)).toBe(0);
  });

  test.each([
    ['a comment', DROP_IN, `[Service]\n# ExecStartPost=-${SRS}\n; ${SRS}\n`],
    ['what takes the state away', DROP_IN, `[Service]\nExecStopPost=${SRS.replace('-srs 1', '-srs 0')}\n`],
    ['what asks for it', UNIT, '[Service]\nExecStart=/usr/bin/nvidia-smi conf-compute -grs\n'],
    ['a file that systemd does not read', `${DROP_IN}.old`, SRS],
  ])('is not %s', async (_, path, text) => {
    expect((await look(machine({ [path]: text }))).of('ready_gate').status).toBe('ok');
  });

  test('cannot be seen from a container', async () => {
    const { of } = await look({ kind: async (path) => (path === '/.dockerenv' ? 'file' : null) });
    expect(of('ready_gate').status).toBe('skip');
  });
});

describe('behind protected PCIe the switches', () => {
  const ppcie = told({ mode: { ...mode, confidential: false, multi_gpu: 'protected_pcie' } });
  const devices = (...list: string[]): Partial<Host> => ({ ...ppcie, list: async () => ['nvidia0', ...list] });
  const inDocker: Partial<Host> = {
    kind: async (path) =>
      path === '/.dockerenv'
        ? 'file'
        : path === '/dev/nvidiactl'
          ? 'device'
          : path === '/run/countersign'
            ? 'folder'
            : null,
  };

  test.each([
    // `docker --gpus`, which compose.yaml uses, reads no NVIDIA_NVSWITCH.
    [
      'in a container',
      inDocker,
      /-f compose\.switches\.yaml up.*NVIDIA_NVSWITCH=enabled is read by nvidia-container-runtime alone/,
    ],
    ['on the machine', {}, /nvidia-fabricmanager/],
  ] as const)('that are not to be seen %s fail, with what shows them', async (_, over, todo) => {
    const { bad, findings } = await look({ ...devices('nvidia-nvswitchctl'), ...over });
    expect(names(bad)).toEqual(['switches fail']);
    expect(bad[0]?.todo).toMatch(todo);
    expect(exitCode(findings)).toBe(1);
  });

  test('without their control device fail too', async () => {
    const access: Host['access'] = async (path) => (path === '/dev/nvidia-nvswitchctl' ? 'ENOENT' : null);
    const { of } = await look({ ...devices('nvidia-nvswitch0'), access });
    expect(of('switches')).toMatchObject({
      status: 'fail',
      seen: expect.stringContaining('no /dev/nvidia-nvswitchctl'),
    });
  });

  test('that we may not open fail, and four that we may are well', async () => {
    const four = devices('nvidia-nvswitchctl', ...[0, 1, 2, 3].map((i) => `nvidia-nvswitch${i}`));
    const access: Host['access'] = async (path) => (path === '/dev/nvidia-nvswitch2' ? 'EACCES' : null);
    expect((await look({ ...four, access })).of('switches').seen).toBe(
      'countersign may not open /dev/nvidia-nvswitch2 (EACCES)',
    );
    expect((await look(four)).of('switches')).toMatchObject({
      status: 'ok',
      seen: expect.stringContaining('4 switch(es)'),
    });
  });

  test('are not looked for elsewhere', async () => {
    expect((await look()).of('switches').status).toBe('skip');
  });
});

describe('a processor that is to sign', () => {
  const settings = { ...config, cpu_evidence: 'required' as const };
  const kinds =
    (...there: string[]): Host['kind'] =>
    async (path) =>
      path === '/run/countersign' ? 'folder' : there.includes(path) || path === '/dev/nvidiactl' ? 'device' : null;
  const linux = (release: string | null) => holding({ '/proc/sys/kernel/osrelease': release });

  test.each([
    [
      'a kernel before configfs-tsm',
      { readText: linux('6.6.87-generic\n'), kind: kinds('/dev/sev-guest') },
      /^Linux 6\.6\.87-generic has/,
      /6\.7/,
    ],
    ['an older one', { readText: linux('5.19.0-snp'), kind: kinds() }, /^Linux 5\.19\.0-snp has/, /6\.7/],
    [
      'a device, and configfs is not mounted',
      { kind: kinds('/dev/tdx_guest') },
      /^there is \/dev\/tdx_guest and no/,
      /mount -t configfs/,
    ],
    ['no device', { kind: kinds() }, /no \/dev\/sev-guest, no \/dev\/tdx_guest/, /modprobe sev-guest or tdx-guest/],
    ['a kernel that does not say', { readText: linux(null), kind: kinds() }, /no \/dev\/sev-guest/, /modprobe/],
    [
      'a container that does not see it',
      { kind: async (path: string) => (path === '/.dockerenv' ? ('file' as const) : kinds()(path)) },
      /^in a Docker container there is no/,
      /compose\.cpu\.yaml/,
    ],
  ] as const)('has %s', async (_, over, seen, todo) => {
    const { of } = await look(over, settings);
    expect(of('cpu')).toMatchObject({
      status: 'fail',
      seen: expect.stringMatching(seen),
      todo: expect.stringMatching(todo),
    });
  });

  test.each(['6.7.0', '6.17.0-5-generic', '7.0.0-31-generic', '10.0'])(
    'has Linux %s, which is new enough',
    async (release) => {
      expect((await look({ readText: linux(release), kind: kinds() }, settings)).of('cpu').seen).not.toContain('Linux');
    },
  );
});

test.each([
  [printed('yes\n'), 'ok'],
  [printed('no\n'), 'warn'],
  [{ exit_code: 1, stdout: '' }, 'skip'],
  [null, 'skip'],
] as const)('a clock that timedatectl speaks of as %j', async (ran, status) => {
  const run: Host['run'] = async (program, args) => (program === 'timedatectl' ? ran : node().run(program, args));
  expect((await look({ run })).of('clock_sync').status).toBe(status);
});

describe("the gateway's canary", () => {
  test.each([
    [{ state: 'good' }, 'ok', /was right; it gives no token ids/],
    [{ state: 'good', token_ids: true }, 'ok', /it gives token ids: answers that ask for them can be audited/],
    [
      { state: 'wrong', reason: 'said\u001b[2J "zzz"' },
      'fail',
      /nonsense \(said\?\[2J "zzz"\): it is attested all the same/,
    ],
    [{ state: 'unavailable', reason: null }, 'warn', /no answer from the model$/],
    [{ state: 'pending' }, 'skip', /not asked yet/],
    [{ state: 'off' }, 'skip', /is off/],
    [{ state: 'other' }, 'skip', /tells of no canary/],
    [undefined, 'skip', /tells of no canary; its backend is ok/],
  ])('%j', async (canary, status, seen) => {
    const { of, findings } = await look({ fetchNear: health({ status: 'ok', canary }, status === 'warn' ? 503 : 200) });
    expect(of('backend')).toMatchObject({ status, seen: expect.stringMatching(seen) });
    expect(exitCode(findings)).toBe(status === 'fail' ? 1 : 0);
    if (status === 'fail') expect(of('backend').todo).toContain('VLLM_USE_V2_MODEL_RUNNER=0');
  });

  test('is not read where no gateway answers: that is said, with the address', async () => {
    const fetchNear = async () => Promise.reject(new TypeError('fetch failed', { cause: errno('ECONNREFUSED') }));
    const { of, findings } = await look({ fetchNear });
    expect(of('backend').status).toBe('skip');
    expect(of('backend').seen).toBe(
      'no gateway answers at http://127.0.0.1:8080/health (ECONNREFUSED): nobody looked at the model; --gateway names it',
    );
    expect(exitCode(findings)).toBe(0);
  });

  test.each([
    '',
    '[]',
    '{"status":"ok"}',
    '<html>',
    // Of another project, that has backends too.
    '{"status":"ok","version":"1.2.3","backend":{"status":"ok"}}',
    'x'.repeat(70_000),
  ])('is not read from another program: %.60j', async (body) => {
    const { of } = await look({ fetchNear: async () => new Response(body, { headers: { server: 'uvicorn' } }) });
    expect(of('backend')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('is another program (status 200, uvicorn): nobody looked at the model'),
      todo: expect.stringContaining('--gateway URL'),
    });
  });

  test('over HTTP, from the address of --gateway, without a proxy, and no more than is needed', async () => {
    const BODY = {
      ...{ status: 'down', version: '0.2.0', sidecar: {} },
      backend: { status: 'down', canary: { state: 'wrong' } },
    };
    const asked: string[] = [];
    const answers: RequestListener = (request, response) => {
      asked.push(`${request.method} ${request.url}`);
      if (asked.length > 1) response.end('x'.repeat(70_000));
      else response.writeHead(503).end(JSON.stringify(BODY));
    };
    const server = createServer(answers);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const host = thisHost({ http_proxy: 'http://127.0.0.1:1' });
    const gateway = `http://127.0.0.1:${port}/`;
    try {
      expect(names(await checkBackend(host, gateway))).toEqual(['backend fail']);
      expect((await checkBackend(host, gateway))[0]).toMatchObject({
        status: 'warn',
        seen: expect.stringContaining('is another program (status 200)'),
      });
      expect(asked).toEqual(['GET /health', 'GET /health']);
    } finally {
      server.close();
    }
    expect(names(await checkBackend(host, gateway))).toEqual(['backend skip']);
  });
});

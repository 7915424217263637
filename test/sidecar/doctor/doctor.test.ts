// The doctor on machines that a test makes up: healthy, and with one thing wrong at a time.
import { describe, expect, test } from 'vitest';
import { ConfigError, loadConfig } from '../../../sidecar/common/config.ts';
import { printFindings } from '../../../sidecar/doctor/examine.ts';
import { exitCode } from '../../../sidecar/doctor/finding.ts';
import type { Host } from '../../../sidecar/doctor/host.ts';
import {
  answering,
  config,
  errno,
  facts,
  look,
  mode,
  NOW,
  type NvmlFacts,
  names,
  noNvml,
  printed,
  programs,
  SMI,
} from './doctor-node.ts';

describe('a healthy node', () => {
  test('has nothing to do, and names what was seen', async () => {
    const { findings, bad, of } = await look();
    expect(bad).toEqual([]);
    expect(exitCode(findings)).toBe(0);
    expect(of('driver').seen).toBe('driver 580.65.06, told by NVML');
    expect(of('attester').seen).toContain('nv-attestation-sdk 2.7.3');
    expect(of('rim').seen).toContain('NV_GPU_DRIVER_GH100_580.65.06');
    expect(of('trial')).toMatchObject({ status: 'skip', seen: 'no sidecar runs on /run/countersign/s.sock' });
    expect(printFindings(findings)).toMatch(
      /^ok {4}container {4}not in a container\n[\s\S]*\n17 ok, 0 warn, 0 fail, 3 skip$/,
    );
  });

  test('is told by nvidia-smi as well where NVML cannot be asked', async () => {
    const run: Host['run'] = async (program, [first]) => {
      if (program !== 'nvidia-smi') return programs[program] ?? null;
      return printed(first === 'conf-compute' ? SMI : '580.65.06, Enabled, NVIDIA H100 80GB HBM3\n');
    };
    const { bad, of } = await look({ nvml: noNvml, run });
    expect(bad).toEqual([]);
    expect(of('gpus').seen).toBe('NVIDIA H100 80GB HBM3 (HOPPER)');
    const off = await look({
      nvml: noNvml,
      run: async (...args) => {
        const ran = await run(...args);
        return ran === null ? null : { ...ran, stdout: ran.stdout.replace(': ON', ': OFF') };
      },
    });
    expect(names(off.bad)).toEqual(['cc_mode fail']);
  });

  test('is told by /proc where that is all', async () => {
    const { findings, bad, of } = await look({ nvml: noNvml });
    expect(of('driver').seen).toBe('driver 580.65.06, told by /proc');
    expect(names(bad)).toEqual(['gpus warn', 'cc_mode warn']);
    expect(exitCode(findings)).toBe(0);
  });
});

describe('one thing wrong', () => {
  const withMode = (change: Partial<NonNullable<NvmlFacts['mode']>>) => ({
    nvml: async () => ({ ...facts, mode: { ...mode, ...change } }),
  });
  const cases: readonly (readonly [string, Partial<Host>, readonly string[], RegExp])[] = [
    ['confidential computing is off', withMode({ confidential: false }), ['cc_mode fail'], /set-cc-mode=on/],
    ['devtools mode is on', withMode({ devtools: true }), ['devtools fail'], /set-cc-mode=on/],
    ['a simulated environment', withMode({ environment: 'simulation' }), ['cc_mode fail'], /production/],
    [
      'GPUs that accept no work',
      { nvml: async () => ({ ...facts, ready: false }) },
      ['ready_state fail'],
      /CAP_SYS_ADMIN: nvidia-smi conf-compute -srs 1/,
    ],
    ['an old driver', { nvml: async () => ({ ...facts, driver: '470.141.03' }) }, ['driver fail'], /580/],
    [
      'a GPU that cannot attest',
      { nvml: async () => ({ ...facts, gpus: [{ model: 'NVIDIA A100', arch: null }] }) },
      ['gpus fail'],
      /Hopper or Blackwell/,
    ],
    [
      'no permission',
      { access: async (path: string) => (path === '/dev/nvidia0' ? 'EACCES' : null) },
      ['devices fail'],
      /give countersign read and write/,
    ],
    ['no GPU given', { list: async () => ['nvidiactl'] }, ['devices fail'], /no GPU was given/],
    ['the services are broken', { fetch: answering(503) }, ['rim warn', 'ocsp warn'], /later/],
    ['a key is wanted', { fetch: answering(403) }, ['rim fail', 'ocsp fail'], /NRAS_SERVICE_KEY_FILE/],
    ['no reference values', { fetch: answering(404) }, ['rim fail'], /for driver 580\.65\.06/],
    ['a captive portal', { fetch: answering(302) }, ['rim warn', 'ocsp warn'], /captive/],
    ['a clock 20 s ahead', { fetch: answering(200, new Date(NOW.getTime() - 20_000)) }, ['clock warn'], /chrony/],
    [
      'a clock an hour behind',
      { fetch: answering(200, new Date(NOW.getTime() + 3_600_000)) },
      ['clock fail'],
      /chrony/,
    ],
    [
      'a clock a minute behind, which agrees with an answer out of a cache',
      {
        fetch: (url, init) =>
          answering(200, new Date(NOW.getTime() + (String(url).includes('ocsp') ? 0 : 60_000)))(url, init),
      },
      ['clock warn'],
      /chrony/,
    ],
    [
      'a socket folder of others',
      { access: async (path: string) => (path === '/run/countersign' ? 'EACCES' : null) },
      ['socket fail'],
      /give the folder/,
    ],
    [
      'a file where the socket goes',
      { kind: async (path: string) => (path.endsWith('s.sock') ? 'file' : 'folder') },
      ['container warn', 'socket fail'],
      /toolkit|move it away/i,
    ],
    [
      'a socket that we may not open',
      { trialAttestation: async () => Promise.reject(errno('EACCES')) },
      ['trial fail'],
      /group that owns/,
    ],
  ];
  test.each(cases)('%s', async (_, over, expected, todo) => {
    const { findings, bad } = await look(over);
    expect(names(bad)).toEqual(expected);
    expect(bad.map((finding) => finding.todo).join(' ')).toMatch(todo);
    expect(exitCode(findings)).toBe(expected.some((one) => one.endsWith('fail')) ? 1 : 0);
  });

  test('no driver: what depends on it is skipped, and the rest is still looked at', async () => {
    const { findings, of } = await look({
      nvml: noNvml,
      readText: async () => null,
      list: async () => [],
      access: async (path) => (path.startsWith('/dev/') ? 'ENOENT' : null),
    });
    expect(names(findings)).toEqual([
      'container ok',
      'driver fail',
      'gpus skip',
      'lkca skip',
      'persistence skip',
      'devices fail',
      'cc_mode skip',
      'devtools skip',
      'ready_state skip',
      'ready_gate ok',
      'switches skip',
      'rim ok',
      'ocsp ok',
      'attester ok',
      'cpu skip',
      'clock ok',
      'clock_sync ok',
      'socket ok',
      'trial skip',
      'backend ok',
    ]);
    expect(of('driver')).toMatchObject({
      seen: expect.stringContaining('libnvidia-ml.so.1'),
      todo: expect.stringContaining('--gpus all'),
    });
  });

  test('no network: the reason is named, and the clock cannot be compared', async () => {
    const failing = async () =>
      Promise.reject(new TypeError('fetch failed', { cause: new Error('getaddrinfo ENOTFOUND') }));
    const { bad, of } = await look({ fetch: failing });
    expect(names(bad)).toEqual(['rim fail', 'ocsp fail']);
    expect(of('ocsp')).toMatchObject({
      seen: expect.stringContaining('ENOTFOUND'),
      todo: expect.stringContaining('OCSP_URL'),
    });
    expect(of('clock').status).toBe('skip');
    const past = await look({ fetch: failing, now: () => new Date('1970-01-01T00:01:00Z') });
    expect(past.of('clock').status).toBe('fail');
  });

  test('a service that hangs is left after five seconds', async () => {
    const started = performance.now();
    const { of } = await look({
      fetch: (_, init) =>
        new Promise((_resolve, reject) => init?.signal?.addEventListener('abort', () => reject(init.signal?.reason))),
    });
    expect(of('rim')).toMatchObject({ status: 'fail', seen: expect.stringContaining('timeout') });
    expect(performance.now() - started).toBeLessThan(7_000);
  });

  test('in a container without the GPU', async () => {
    const { of } = await look({
      kind: async (path) => (path === '/.dockerenv' ? 'file' : path === '/run/countersign' ? 'folder' : null),
    });
    expect(of('container')).toMatchObject({ status: 'warn', todo: expect.stringContaining('--gpus all') });
  });
});

describe('the chosen attester', () => {
  const choose = (ATTESTER: string) => ({
    ...config,
    ...loadConfig({ ATTESTER }),
    sidecar_socket: config.sidecar_socket,
  });

  const running = (nvattest: string | null, sdk = true) => ({
    run: async (program: string) => {
      if (program === 'nvattest') return nvattest === null ? null : printed(`{ "nvattest": "${nvattest}" }`);
      return program.endsWith('python') && !sdk ? null : (programs[program] ?? null);
    },
  });

  test("auto is NVIDIA's SDK, then nvattest, then native, and says which and why", async () => {
    const attesterOf = async (over: Parameters<typeof look>[0]) => (await look(over)).of('attester');
    expect(config.attester).toBe('auto');
    const first = await attesterOf(running('2.0.0'));
    expect(first).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/nvtrust: nv-attestation-sdk 2\.7\.3.*; nvattest 2\.0\.0 stands by$/),
    });
    expect(await attesterOf(running(null))).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/nvattest is absent: from CUDA 13\.5 on/),
    });
    expect(await attesterOf(running('2.0.0', false))).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/nvattest 2\.0\.0; not chosen: .*does not know nv-attestation-sdk$/),
    });
    expect(await attesterOf(running('1.2.1', false))).toMatchObject({
      status: 'warn',
      todo: expect.stringMatching(/install\.sh.*nvattest 2\.0\.0 or newer/),
    });
    expect(await attesterOf(running(null, false))).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/native: libnvidia-ml\.so\.1 answers; not chosen: .*nvattest cannot be run/),
    });
    expect(await attesterOf({ ...running(null, false), nvml: noNvml })).toMatchObject({
      status: 'fail',
      todo: expect.stringMatching(/install\.sh \/opt\/venv/),
    });
  });

  test('an attester that is named must be there', async () => {
    const missing = await look(running('2.0.0', false), choose('nvtrust'));
    expect(missing.of('attester')).toMatchObject({ status: 'fail', todo: expect.stringMatching(/install\.sh/) });
    const absent = await look(running(null), choose('nvattest'));
    expect(absent.of('attester')).toMatchObject({ status: 'fail', todo: expect.stringContaining('on PATH') });
    expect((await look(running('1.2.1'), choose('nvattest'))).of('attester')).toMatchObject({
      status: 'warn',
      todo: 'install nvattest 2.0.0 or newer',
    });
    expect((await look(running('2.0.0'), choose('nvattest'))).of('attester').status).toBe('ok');
  });

  test('native and nras want NVML; nras its service too', async () => {
    expect((await look({}, choose('native'))).bad).toEqual([]);
    expect((await look({ nvml: noNvml }, choose('native'))).of('attester').status).toBe('fail');
    expect((await look({}, choose('nras'))).of('nras').seen).toContain(
      'https://nras.attestation.nvidia.com answers 200',
    );
  });

  test('simulated does without hardware and network', async () => {
    const failing = async () => Promise.reject(new TypeError('fetch failed'));
    const { findings, bad } = await look(
      { nvml: noNvml, readText: async () => null, list: async () => [], fetch: failing },
      choose('simulated'),
    );
    expect(names(bad)).toEqual(['attester warn']);
    expect(exitCode(findings)).toBe(0);
  });

  test('a wrong setting is named', () => {
    expect(() => loadConfig({ ATTESTER: 'gpu' })).toThrow(ConfigError);
    expect(() => loadConfig({ OCSP_URL: 'ocsp.example' })).toThrow(/^OCSP_URL/);
  });
});

test('protected PCIe is well with an attester that asks the switches too, and not with another', async () => {
  const behind = {
    nvml: async () => ({ ...facts, mode: { ...mode, confidential: false, multi_gpu: 'protected_pcie' as const } }),
    list: async () => ['nvidia0', 'nvidia-nvswitchctl', 'nvidia-nvswitch0'],
  };
  const well = await look(behind);
  expect(well.bad).toEqual([]);
  expect(well.of('cc_mode').seen).toMatch(/NVSwitches are attested with the GPUs/);
  const other = await look(behind, { ...config, attester: 'nras' });
  expect(other.of('cc_mode')).toMatchObject({ status: 'fail', todo: 'set ATTESTER to nvtrust or native' });
});

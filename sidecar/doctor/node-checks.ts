// The doctor's checks of the node itself: container, devices, mode, switches, the attester's requirements, the socket.
import { dirname, join } from 'node:path';
import { isSocketPath } from '../../node/settings.ts';
import type { AttesterName, SidecarConfig } from '../common/config.ts';
import { SWITCH_CONTROL } from '../driver/nscq.ts';
import { readsNewFormat } from '../driver/versions.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import type { Facts, Host } from './host.ts';

// Are we in a container, and did it get the GPU?

/** @param kind of the container; null outside a container. */
export async function checkContainer(host: Host, kind: string | null): Promise<Finding[]> {
  if (kind === null) return [ok('container', 'not in a container')];
  if ((await host.kind('/dev/nvidiactl')) === 'device')
    return [
      ok(
        'container',
        `in ${kind}, which has the GPU; it sees the kernel and the driver of the node, and none of its files`,
      ),
    ];
  return [
    warn(
      'container',
      `in ${kind}, which has no GPU`,
      'install the NVIDIA Container Toolkit on the node and start with --gpus all (compose: deploy.resources.reservations.devices)',
    ),
  ];
}

export async function containerKind(host: Host): Promise<string | null> {
  if ((await host.kind('/.dockerenv')) !== null) return 'a Docker container';
  if ((await host.kind('/run/.containerenv')) !== null) return 'a Podman container';
  const groups = (await host.readText('/proc/1/cgroup')) ?? '';
  if (groups.includes('kubepods')) return 'a Kubernetes pod';
  return /docker|containerd|crio|lxc/.test(groups) ? 'a container' : null;
}

// Are the driver's device files there, and may we open them?

const CONTROL = '/dev/nvidiactl';

export async function checkDevices(host: Host, { gpus }: Facts): Promise<Finding[]> {
  const numbered = (await host.list('/dev'))
    .filter((name) => /^nvidia[0-9]+$/.test(name))
    .map((name) => `/dev/${name}`);
  const refused: string[] = [];
  for (const path of [CONTROL, ...numbered]) {
    const reason = await host.access(path, 'read_write');
    if (reason === 'ENOENT' && path === CONTROL)
      return [
        fail(
          'devices',
          `${CONTROL} is not there`,
          'load the driver (nvidia-modprobe, or nvidia-smi as root); in a container, start it with --gpus all',
        ),
      ];
    if (reason !== null) refused.push(`${path} (${reason})`);
  }
  if (refused.length > 0)
    return [
      fail(
        'devices',
        `${host.user} may not open ${refused.join(', ')}`,
        `give ${host.user} read and write access: the group that owns the files (often video or render), or the container's device rules`,
      ),
    ];
  if (numbered.length === 0)
    return [fail('devices', `${CONTROL} and no /dev/nvidia0`, 'no GPU was given to this machine or container')];
  const seen = `${host.user} can open ${CONTROL} and ${numbered.join(', ')}`;
  if (gpus.length > 0 && gpus.length !== numbered.length)
    return [
      warn(
        'devices',
        `${seen}; the driver sees ${gpus.length}`,
        'a token is about every GPU that the driver shows us: show all, or the ones in use',
      ),
    ];
  return [ok('devices', seen)];
}

// Is confidential computing on, devtools mode off, and do the GPUs accept work?

const TURN_ON =
  'from the host: nvidia_gpu_tools.py --set-cc-mode=on --reset-after-cc-mode-switch (NVIDIA/gpu-admin-tools), then restart the machine';

/** The attesters that attest switches too. */
const BEHIND_SWITCHES: readonly AttesterName[] = ['nvtrust', 'native'];

export function checkMode({ driver, source, mode, ready }: Facts, attester: AttesterName): Finding[] {
  const names = ['cc_mode', 'devtools', 'ready_state'] as const;
  if (driver === null) return names.map((name) => skip(name, 'no driver'));
  if (mode === null) {
    const [, ...rest] = names;
    return [
      source === '/proc'
        ? warn('cc_mode', 'nothing here can ask', 'install nvidia-smi, or koffi by npm ci')
        : fail(
            'cc_mode',
            'driver or GPU knows no confidential computing',
            'a Hopper or newer and driver 580 or newer are needed',
          ),
      ...rest.map((name) => skip(name, 'no confidential computing')),
    ];
  }
  if (mode.multi_gpu === 'protected_pcie') return [protectedPcie(attester), devtools(mode.devtools), readiness(ready)];
  if (!mode.confidential)
    return [
      fail('cc_mode', 'confidential computing is off', TURN_ON),
      ...(mode.devtools ? [devtools(true)] : [skip('devtools', 'confidential computing is off')]),
      skip('ready_state', 'confidential computing is off'),
    ];
  return [environment(mode.environment, mode.multi_gpu), devtools(mode.devtools), readiness(ready)];
}

function protectedPcie(attester: AttesterName): Finding {
  const seen = 'protected PCIe is on: the NVSwitches are attested with the GPUs';
  if (attester === 'auto' || BEHIND_SWITCHES.includes(attester))
    return ok('cc_mode', `${seen}, through libnvidia-nscq of the driver's branch`);
  return fail('cc_mode', `${seen}, and ATTESTER=${attester} cannot`, `set ATTESTER to ${BEHIND_SWITCHES.join(' or ')}`);
}

function environment(where: string, multi_gpu: string | null): Finding {
  if (where === 'simulation')
    return fail('cc_mode', 'on, in a simulated environment', 'no hardware keeps its secrets: use a production GPU');
  return ok('cc_mode', `confidential computing is on${multi_gpu === 'nvle' ? ', with encrypted NVLink' : ''}`);
}

const devtools = (on: boolean): Finding =>
  on
    ? fail('devtools', 'devtools mode is on: the GPU can be looked into', TURN_ON)
    : ok('devtools', 'devtools mode is off');

function readiness(ready: boolean | null): Finding {
  if (ready === null) return skip('ready_state', 'the driver does not say');
  if (ready) return ok('ready_state', 'the GPUs accept work');
  return fail(
    'ready_state',
    'the GPUs attest, but accept no work: CUDA fails with error 802',
    'when the line `trial` is good, as root with CAP_SYS_ADMIN: nvidia-smi conf-compute -srs 1 (countersign-ready does it). Where they were ready before, or the driver refuses that to root, confidential computing was torn down after a failed call (dmesg: "ConfCompute: Fatal error hit!"): restart the guest',
  );
}

// Does something set the GPUs ready at the start of the machine, before anything attested?

const UNITS = '/etc/systemd/system';
/** `nvidia-smi conf-compute -srs 1`, as a program or a line of a script calls it. */
const SETS_READY = /\bconf-compute\b[^\n]*(?:-srs|--set-gpus?-ready-state)[\s=]+1\b/;

/** @param container its kind; null outside a container, whose files are none of the node's. */
export async function checkReadyGate(host: Host, container: string | null): Promise<Finding[]> {
  const name = 'ready_gate';
  if (container !== null) return [skip(name, 'only on the node can be seen what sets the GPUs ready at its start')];
  const found: string[] = [];
  for (const path of ['/etc/rc.local', ...(await unitFiles(host))]) {
    const lines = ((await host.readText(path)) ?? '').split('\n').filter((line) => !/^\s*[#;]/.test(line));
    if (lines.some((line) => SETS_READY.test(line))) found.push(path);
  }
  if (found.length === 0)
    return [ok(name, `no unit in ${UNITS} and no /etc/rc.local sets the GPUs ready before an attestation`)];
  return [
    warn(
      name,
      `${found.join(', ')} sets the GPUs ready at each start, before anything attested`,
      `as root: sed -i '/conf-compute.*-srs/d' ${found.join(' ')} && systemctl daemon-reload, and restart the machine; countersign-ready sets them once an attestation verifies`,
    ),
  ];
}

/** Units that the operator, or a cloud's scripts, laid down, and what is laid over others. */
async function unitFiles(host: Host): Promise<string[]> {
  const files: string[] = [];
  for (const entry of await host.list(UNITS)) {
    const path = join(UNITS, entry);
    if (entry.endsWith('.service')) files.push(path);
    if (!entry.endsWith('.service.d')) continue;
    for (const dropIn of await host.list(path)) if (dropIn.endsWith('.conf')) files.push(join(path, dropIn));
  }
  return files;
}

// Behind protected PCIe: can the switches be opened?

/** @param container its kind; null outside a container. */
export async function checkSwitches(host: Host, { driver, mode }: Facts, container: string | null): Promise<Finding[]> {
  const name = 'switches';
  if (driver === null) return [skip(name, 'no driver')];
  if (mode?.multi_gpu !== 'protected_pcie') return [skip(name, 'protected PCIe is not on')];
  const numbered = (await host.list('/dev'))
    .filter((file) => /^nvidia-nvswitch[0-9]+$/.test(file))
    .map((file) => `/dev/${file}`);
  if (numbered.length === 0 || (await host.access(SWITCH_CONTROL, 'read_write')) === 'ENOENT')
    return [
      fail(
        name,
        `protected PCIe is on, and there is no ${numbered.length === 0 ? '/dev/nvidia-nvswitch0' : SWITCH_CONTROL}`,
        container === null
          ? 'give all switches to this machine with the GPUs (lspci -d 10de:), and start nvidia-fabricmanager of the driver’s version'
          : 'compose: docker compose -f compose.yaml -f compose.switches.yaml up -d. Kubernetes: gpu.access=runtimeClass. NVIDIA_NVSWITCH=enabled is read by nvidia-container-runtime alone, not with --gpus',
      ),
    ];
  const refused: string[] = [];
  for (const path of [SWITCH_CONTROL, ...numbered]) {
    const reason = await host.access(path, 'read_write');
    if (reason !== null) refused.push(`${path} (${reason})`);
  }
  if (refused.length > 0)
    return [fail(name, `${host.user} may not open ${refused.join(', ')}`, `give ${host.user} read and write access`)];
  return [ok(name, `${host.user} can open ${SWITCH_CONTROL} and ${numbered.length} switch(es)`)];
}

// Does the chosen attester have what it needs: a Python environment, the nvattest program, or NVML?

const NAME = 'attester';
const INSTALL = "install NVIDIA's package nvattest (developer.nvidia.com/nvat-downloads): the program must be on PATH";
const SDK = 'nv-attestation-sdk';
const SDK_VERSION = `import importlib.metadata as m; print(m.version('${SDK}'))`;

export async function checkRequirements(host: Host, config: SidecarConfig, facts: Facts): Promise<Finding[]> {
  switch (config.attester) {
    case 'nvtrust':
      return [await withStandBy(host, config, await nvtrust(host, config))];
    case 'auto':
      return [await checkAuto(host, config, facts)];
    case 'nvattest':
      return [await nvattest(host, config)];
    case 'native':
    case 'nras':
      return [nvml(config, facts)];
    case 'simulated':
      return [
        warn(NAME, 'ATTESTER=simulated: it proves nothing about hardware', 'on a node with a GPU, choose another'),
      ];
  }
}

/** Which attester `auto` chooses here, and why not the ones before it. */
async function checkAuto(host: Host, config: SidecarConfig, facts: Facts): Promise<Finding> {
  const first = await nvtrust(host, config);
  if (first.status === 'ok') return withStandBy(host, config, first);
  const second =
    (await host.kind(SWITCH_CONTROL)) === null
      ? await nvattest(host, config)
      : fail(NAME, 'nvattest attests no NVSwitches', 'use nvtrust or native');
  const chosen = second.status === 'fail' ? nvml(config, facts) : second;
  const before = second === chosen ? first.seen : `${first.seen}; ${second.seen}`;
  const seen = `${chosen.seen}; not chosen: ${before}`;
  return chosen.status === 'ok' ? ok(NAME, seen) : { ...chosen, seen, todo: `${first.todo}; or: ${chosen.todo}` };
}

/** The SDK does not read what drivers of CUDA 13.5 and later sign. The sidecar then gives way to nvattest by itself, where it is there. */
async function withStandBy(host: Host, config: SidecarConfig, finding: Finding): Promise<Finding> {
  if (finding.status !== 'ok') return finding;
  const version = await nvattestVersion(host, config);
  const able = version !== null && readsNewFormat(version) !== false;
  const other = version === null ? 'nvattest is absent' : `nvattest ${version} stands by`;
  const then = able
    ? ''
    : `: from CUDA 13.5 on, drivers sign what only nvattest 2 ${config.attester === 'auto' ? 'and native read' : 'reads'}`;
  return ok(NAME, `${finding.seen}; ${other}${then}`);
}

async function nvtrust(host: Host, { attester, nvtrust_venv }: SidecarConfig): Promise<Finding> {
  const name = attester === 'auto' ? 'ATTESTER=auto: nvtrust' : 'ATTESTER=nvtrust';
  const python = join(nvtrust_venv, 'bin', 'python');
  const todo = `run sidecar/attesters/nvtrust/python/install.sh ${nvtrust_venv}, or name the environment in NVTRUST_VENV`;
  const reason = await host.access(python, 'execute');
  if (reason !== null) return fail(NAME, `${name}: ${python} cannot be run (${reason})`, todo);
  const ran = await host.run(python, ['-I', '-c', SDK_VERSION]);
  if (ran === null || ran.exit_code !== 0) return fail(NAME, `${name}: ${python} does not know ${SDK}`, todo);
  return ok(NAME, `${name}: ${SDK} ${ran.stdout.trim().slice(0, 40)} in ${nvtrust_venv}`);
}

async function nvattest(host: Host, config: SidecarConfig): Promise<Finding> {
  const name = config.attester === 'auto' ? 'ATTESTER=auto: nvattest' : 'ATTESTER=nvattest';
  const version = await nvattestVersion(host, config);
  if (version === null)
    return fail(NAME, `${name}: ${config.nvattest} cannot be run, or does not tell its version`, INSTALL);
  if (readsNewFormat(version) === false)
    return warn(
      NAME,
      `${name}: nvattest ${version}, which cannot read what drivers of CUDA 13.5 and later sign`,
      'install nvattest 2.0.0 or newer',
    );
  return ok(NAME, `${name}: nvattest ${version}`);
}

async function nvattestVersion(host: Host, { nvattest: program }: SidecarConfig): Promise<string | null> {
  const ran = await host.run(program, ['version']);
  return /"nvattest"\s*:\s*"([^"]{1,40})"/.exec(ran?.stdout ?? '')?.[1] ?? null;
}

function nvml({ attester, nvml_library }: SidecarConfig, { nvml_error }: Facts): Finding {
  if (nvml_error === null)
    return ok(NAME, `ATTESTER=${attester}: ${attester === 'auto' ? 'native: ' : ''}${nvml_library} answers`);
  return fail(
    NAME,
    `ATTESTER=${attester}: ${nvml_error}`,
    `without ${nvml_library} and koffi this attester cannot collect`,
  );
}

// Can the sidecar make its socket: does a folder exist that we may write to, and is the path free?

export async function checkSocket(host: Host, { sidecar_socket }: SidecarConfig): Promise<Finding[]> {
  const name = 'socket';

  if (!isSocketPath(sidecar_socket))
    return [fail(name, `${sidecar_socket} cannot be a socket's address`, 'choose a path of 100 bytes or fewer')];
  const there = await host.kind(sidecar_socket);
  if (there !== null && there !== 'socket')
    return [fail(name, `${sidecar_socket} is a ${there}`, 'move it away, or choose another SIDECAR_SOCKET')];
  const folder = await nearest(host, dirname(sidecar_socket));
  const reason = (await host.kind(folder)) === 'folder' ? await host.access(folder, 'write') : 'ENOTDIR';
  if (reason !== null)
    return [
      fail(
        name,
        `${host.user} may not write in ${folder} (${reason})`,
        'give the folder to the user that runs the sidecar (a volume keeps the owner it was made with), or set SIDECAR_SOCKET',
      ),
    ];
  const made = folder === dirname(sidecar_socket) ? '' : '; the sidecar makes the rest of the path';
  return [ok(name, `${host.user} can write in ${folder}${made}`)];
}

/** The folder, or its nearest ancestor that exists. */
async function nearest(host: Host, folder: string): Promise<string> {
  let path = folder;
  while ((await host.kind(path)) === null && dirname(path) !== path) path = dirname(path);
  return path;
}

// A node for the doctor to look at: all is well on it, except for what a test lays over it.
import { loadConfig } from '../../../sidecar/common/config.ts';
import { examine } from '../../../sidecar/doctor/examine.ts';
import type { Finding } from '../../../sidecar/doctor/finding.ts';
import type { Host } from '../../../sidecar/doctor/host.ts';

export type Ran = NonNullable<Awaited<ReturnType<Host['run']>>>;

export type NvmlFacts = Awaited<ReturnType<Host['nvml']>>;

export const NOW = new Date('2026-11-21T12:00:00Z');
const PROC =
  'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22-I3)  Thu Jul 17';
export const SMI = `
==============NVSMI CONF-COMPUTE LOG==============

    CC State                   : ON
    Multi-GPU Mode             : None
    CPU CC Capabilities        : AMD SEV-SNP
    GPU CC Capabilities        : CC Capable
    CC GPUs Ready State        : Ready
    DevTools Mode              : OFF
`;
export const mode = { environment: 'production', confidential: true, devtools: false, multi_gpu: 'none' } as const;
export const facts: NvmlFacts = {
  driver: '580.65.06',
  gpus: [{ model: 'NVIDIA H100', arch: 'HOPPER' }],
  mode,
  ready: true,
  persistence: true,
};
/** As a kernel prints it whose modules ecdsa_generic and ecdh are loaded. */
export const CRYPTO = `name         : ecdsa-nist-p384
driver       : ecdsa-nist-p384-generic
module       : ecdsa_generic

name         : ecdh-nist-p384
driver       : ecdh-nist-p384-generic
module       : ecdh

name         : sha256
module       : kernel
`;
/** What a node's files hold, by path, beside those of a healthy one. */
export const holding =
  (files: Readonly<Record<string, string | null>>): Host['readText'] =>
  async (path) =>
    Object.hasOwn(files, path) ? (files[path] ?? null) : (HEALTHY[path] ?? null);
const HEALTHY: Readonly<Record<string, string>> = {
  '/proc/driver/nvidia/version': PROC,
  '/proc/crypto': CRYPTO,
  '/proc/sys/kernel/osrelease': '6.17.0-5-generic\n',
};
/** A gateway's /health. */
export const health =
  (backend: object, status = 200): typeof fetch =>
  async () =>
    new Response(JSON.stringify({ status: 'ok', backend, sidecar: {}, version: '0.2.0' }), { status });
export const printed = (stdout: string): Ran => ({ exit_code: 0, stdout });
export const programs: Record<string, Ran> = {
  '/opt/venv/bin/python': printed('2.7.3\n'),
  nvattest: printed('{\n  "nvattest": "1.1.0"\n}\n'),
  timedatectl: printed('yes\n'),
};
export const config = loadConfig({ SIDECAR_SOCKET: '/run/countersign/s.sock', NVTRUST_VENV: '/opt/venv' });
export const answering =
  (status: number, date: Date | null = NOW): typeof fetch =>
  async () =>
    new Response('{}', { status, headers: date === null ? {} : { date: date.toUTCString() } });
export const errno = (code: string) => Object.assign(new Error(code), { code });

/** A node on which all is well, except for what is laid over it. */
export const node = (over: Partial<Host> = {}): Host => ({
  user: 'countersign',
  now: () => NOW,
  readText: holding({}),
  list: async () => ['null', 'nvidia-uvm', 'nvidia0', 'nvidiactl'],
  kind: async (path) => (path === '/run/countersign' ? 'folder' : path === '/dev/nvidiactl' ? 'device' : null),
  access: async () => null,
  run: async (program) => programs[program] ?? null,
  fetch: answering(200),
  fetchNear: health({ status: 'ok', canary: { state: 'good' } }),
  nvml: async () => facts,
  trialAttestation: async () => Promise.reject(errno('ENOENT')),
  ...over,
});
export const noNvml = async () => Promise.reject(new Error('libnvidia-ml.so.1 cannot be loaded'));

export const look = async (over: Partial<Host> = {}, settings = config) => {
  const findings = await examine(node(over), settings);
  const of = (name: string): Finding => {
    const found = findings.find((finding) => finding.name === name);
    if (found === undefined) throw new Error(`no finding ${name}`);
    return found;
  };
  return { findings, of, bad: findings.filter(({ status }) => status === 'warn' || status === 'fail') };
};
export const names = (findings: readonly Finding[]) => findings.map(({ name, status }) => `${name} ${status}`);

// compose.cpu.yaml, compose.switches.yaml and compose.measured.yaml over compose.yaml, as Compose reads them: no daemon is needed for that.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readCompose } from '../../proto/attestation/compose.ts';
import { loadConfig } from '../../sidecar/common/config.ts';
import { composeProgram } from '../support/compose-program.ts';
import { MissingPart } from '../support/debian.ts';
import { COMPOSE } from '../support/launch-file.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LAUNCH_FILE = '/srv/countersign/launch.json';
/** The kernel's reports, and where containers see them: a container's /sys is no place for a mount. */
const REPORTS = '/sys/kernel/config/tsm/report';
const INSIDE = '/run/tsm';
const ENTRY = `${INSIDE}/countersign`;

function programOrNull(): string | null {
  try {
    return composeProgram();
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: compose.cpu.yaml: this machine lacks ${error.message}`);
    return null;
  }
}
const program = programOrNull();

/** The services of profile node. @throws {Error} with what Compose says of a file that is not valid. */
function servicesOf(more: Readonly<Record<string, string>>, overlay = 'compose.cpu.yaml') {
  const files = ['--env-file', '.env.example', '-f', 'compose.yaml', '-f', overlay];
  const { status, stdout, stderr } = spawnSync(
    program ?? '',
    [...files, '--profile', 'node', 'config', '--format', 'json'],
    {
      cwd: ROOT,
      encoding: 'utf8',
      env: { PATH: process.env.PATH ?? '', ...more },
    },
  );
  if (status !== 0) throw new Error(`Compose ended with ${status}: ${stderr}`);
  return JSON.parse(stdout).services;
}

describe.skipIf(program === null)('compose.yaml with compose.cpu.yaml', () => {
  describe.each([
    ['without a launch file', {}, '', '/dev/null:/etc/countersign/no-launch-file:ro'],
    ['with one', { LAUNCH_FILE }, LAUNCH_FILE, `${LAUNCH_FILE}:${LAUNCH_FILE}:ro`],
  ] as const)('%s', (_, variables, value, mount) => {
    it('names it to the sidecar, which has it there for reading', () => {
      const { sidecar } = servicesOf(variables);
      expect(sidecar.environment.LAUNCH_FILE).toBe(value);
      const others = [
        'socket:/run/countersign',
        'sidecar-state:/var/lib/countersign',
        `${REPORTS}/countersign:${ENTRY}`,
      ];
      const mounts: string[] = sidecar.volumes.map(
        (one: { source: string; target: string; read_only?: boolean }) =>
          `${one.source}:${one.target}${one.read_only === true ? ':ro' : ''}`,
      );
      expect(mounts.sort()).toEqual([...others, mount].sort());
    });

    it('is valid, and the sidecar asks the processor by the entry that `tsm` has made', () => {
      const { tsm, sidecar } = servicesOf(variables);
      // What has no value is not set in the container.
      const set = Object.entries<string | null>(sidecar.environment).filter(([, one]) => one !== null);
      const config = loadConfig(Object.fromEntries(set) as Record<string, string>);
      expect([tsm.environment.TSM_ENTRY, tsm.volumes]).toEqual([
        ENTRY,
        [expect.objectContaining({ source: REPORTS, target: INSIDE })],
      ]);
      expect([config.cpu_evidence, config.tsm_entry, config.launch_file]).toEqual(['required', ENTRY, value || null]);
      expect(sidecar.depends_on).toEqual({ tsm: { condition: 'service_healthy', required: true } });
      expect([sidecar.read_only, sidecar.cap_drop]).toEqual([true, ['ALL']]);
      // After a start of the machine the entry is gone, and Docker starts what had not ended.
      expect([tsm.network_mode, tsm.restart, tsm.cap_drop]).toEqual(['none', 'unless-stopped', ['ALL']]);
      expect(tsm.entrypoint.at(-1)).toMatch(/tsm-entry\.sh 10000 && exec sleep infinity$/);
    });
  });
});

it.skipIf(program === null)(
  'compose.switches.yaml shows the sidecar the switches by name, and no other service',
  () => {
    const services: Record<string, { devices?: { source: string; target: string }[] }> = servicesOf(
      {},
      'compose.switches.yaml',
    );
    const shown = Object.entries(services).flatMap(([name, { devices = [] }]) =>
      devices.map((one) => [name, one.source]),
    );
    const switches = ['ctl', '0', '1', '2', '3'].map((name) => `/dev/nvidia-nvswitch${name}`);
    expect(shown).toEqual(switches.map((path) => ['sidecar', path]));
    for (const { source, target } of services.sidecar?.devices ?? []) expect(target).toBe(source);
    // Docker's own request for GPUs heeds no NVIDIA_NVSWITCH: where it stood it promised what it did not do.
    expect(JSON.stringify(services)).not.toContain('NVIDIA_NVSWITCH');
  },
);

it.skipIf(program === null)(
  'compose.measured.yaml makes a file that a launch file can vouch for; without it none is made',
  () => {
    const files = ['-f', 'compose.yaml', '-f', 'compose.cpu.yaml'];
    const printed = (...more: readonly string[]) => {
      const { stdout, stderr } = spawnSync(
        program ?? '',
        [
          '-p',
          'countersign',
          '--env-file',
          '.env.example',
          ...files,
          ...more,
          '--profile',
          'node',
          'config',
          '--format',
          'json',
        ],
        {
          cwd: ROOT,
          encoding: 'utf8',
          env: {
            PATH: process.env.PATH ?? '',
            WEIGHTS_ROOT: 'cd'.repeat(32),
            GATEWAY_IMAGE: `registry.example/gateway@sha256:${'a1'.repeat(32)}`,
            SIDECAR_IMAGE: `registry.example/sidecar@sha256:${'a2'.repeat(32)}`,
          },
        },
      );
      return stdout === '' ? stderr : stdout;
    };
    const measured = printed('-f', 'compose.measured.yaml');
    // The tests of the launch file read this text.
    expect(JSON.parse(measured)).toEqual(JSON.parse(COMPOSE));
    expect(readCompose(measured).roots).toEqual(['cd'.repeat(32)]);
    expect(() => readCompose(printed())).toThrow('the compose file may not have secrets');
  },
);

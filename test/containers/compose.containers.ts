import { describe, expect, inject, it } from 'vitest';
import { parse } from 'yaml';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');

interface Service {
  readonly image: string;
  readonly networks?: Record<string, unknown>;
  readonly network_mode?: string;
  readonly depends_on?: Record<string, { condition: string }>;
  readonly volumes?: readonly { source: string; target: string; read_only?: boolean }[];
  readonly environment?: Record<string, string | null>;
  readonly command?: readonly string[];
  readonly cap_add?: readonly string[];
  readonly ulimits?: Record<string, unknown>;
  readonly restart?: string;
  readonly deploy?: { resources: { reservations: { devices: { capabilities: string[] }[] } } };
}

/** compose.yaml with one profile chosen, as Compose understands it. */
async function configOf(profile: string): Promise<Record<string, Service>> {
  const stage = stageOf(made as Made);
  return parse(await stage.compose('--profile', profile, 'config')).services;
}

/** `SOURCE:TARGET`, with `:ro` where it is for reading. */
const mountsOf = ({ volumes = [] }: Partial<Service>) =>
  volumes.map(({ source, target, read_only }) => `${source}:${target}${read_only === true ? ':ro' : ''}`);

describe.skipIf('missing' in made)('compose.yaml', () => {
  it.each(['node', 'demo', 'model', 'tools'])(
    'is valid, and hardened in every service of profile %s',
    async (profile) => {
      const services = await configOf(profile);
      expect(Object.keys(services).length).toBeGreaterThan(0);
      for (const [name, service] of Object.entries(services)) {
        expect([name, service]).toEqual([
          name,
          expect.objectContaining({
            init: true,
            read_only: true,
            cap_drop: ['ALL'],
            security_opt: ['no-new-privileges:true'],
            pids_limit: expect.any(Number),
            mem_limit: expect.anything(),
            tmpfs: expect.arrayContaining([expect.stringMatching(/^\/tmp:/)]),
            ulimits: expect.objectContaining({ core: { soft: 0, hard: 0 } }),
            logging: expect.objectContaining({ options: { 'max-file': '3', 'max-size': '10m' } }),
          }),
        ]);
        expect([name, Object.keys(service)]).toEqual([
          name,
          expect.not.arrayContaining(['privileged', 'pid', 'ipc', 'devices']),
        ]);
        // The driver asks for it, and for becoming the user that asks for an attestation.
        const needed = name === 'ready' ? ['SYS_ADMIN', 'SETUID', 'SETGID'] : undefined;
        expect([name, service.cap_add]).toEqual([name, needed]);
        expect(JSON.stringify(service)).not.toContain('docker.sock');
      }
    },
  );

  it('lets no service wait for another', async () => {
    for (const profile of ['node', 'demo'])
      for (const [name, { depends_on }] of Object.entries(await configOf(profile)))
        expect([name, depends_on]).toEqual([name, undefined]);
  });

  it('gives the backend no way out, no log of requests, no telemetry, and the runner that works in confidential mode', async () => {
    const { backend } = await configOf('node');
    expect(Object.keys(backend?.networks ?? {})).toEqual(['inside']);
    expect(backend?.command).toContain('--no-enable-log-requests');
    expect(backend?.environment).toMatchObject({ VLLM_NO_USAGE_STATS: '1', DO_NOT_TRACK: '1', HF_HUB_OFFLINE: '1' });
    expect(backend?.environment).toMatchObject({ VLLM_USE_V2_MODEL_RUNNER: '0' });
    expect(mountsOf(backend ?? {})).toEqual([expect.stringMatching(/:\/models:ro$/)]);
  });

  it('gives the sidecar of the GPU what NVML needs, and the socket to gateway and `ready` for reading', async () => {
    const { sidecar, gateway, ready } = await configOf('node');
    for (const service of [sidecar, ready]) {
      const [device] = service?.deploy?.resources.reservations.devices ?? [];
      expect(device?.capabilities).toEqual(['gpu', 'utility']);
    }
    expect(mountsOf(sidecar ?? {})).toContain('socket:/run/countersign');
    expect(mountsOf(gateway ?? {})).toEqual(['socket:/run/countersign:ro', 'audit:/var/log/countersign']);
    expect(mountsOf(ready ?? {})).toEqual(['socket:/run/countersign:ro']);
  });

  it('has `ready` ask as the sidecar asks, come back after every start of the machine, and publish nothing', async () => {
    const { ready, sidecar } = await configOf('node');
    expect(ready?.restart).toBe('unless-stopped');
    const { READY_USER, READY_WITHOUT_ATTESTATION, READY_WAIT_S, ...rest } = ready?.environment ?? {};
    expect([READY_USER, READY_WITHOUT_ATTESTATION ?? '', READY_WAIT_S ?? '']).toEqual(['10001:10000', '', '']);
    expect(rest).toEqual(sidecar?.environment);
    expect(ready).not.toHaveProperty('ports');
  });

  it('is valid with .env.example as it is', async () => {
    await stageOf(made as Made).compose('--env-file', '.env.example', '--profile', 'node', 'config', '--quiet');
  });
});

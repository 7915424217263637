import { describe, expect, inject, it } from 'vitest';
import { run } from './command.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');

interface Service {
  readonly image: string;
  readonly networks?: Record<string, unknown>;
  readonly network_mode?: string;
  readonly depends_on?: Record<string, { condition: string }>;
  readonly volumes?: readonly string[];
  readonly environment?: Record<string, string>;
  readonly command?: string;
  readonly deploy?: { resources: { reservations: { devices: { capabilities: string[] }[] } } };
}

/** compose.yaml with one profile chosen, as docker-compose understands it. */
async function configOf(profile: string): Promise<Record<string, Service>> {
  const stage = stageOf(made as Made);
  const yaml = await stage.compose('--profile', profile, 'config');
  // Compose 1.29 is Python, and brings a YAML reader along.
  const json = await run('python3', [
    '-c',
    'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])["services"]))',
    yaml,
  ]);
  return JSON.parse(json) as Record<string, Service>;
}

describe.skipIf('missing' in made)('compose.yaml', () => {
  it.each(['node', 'demo', 'model'])('is valid, and hardened in every service of profile %s', async (profile) => {
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
          logging: expect.objectContaining({ options: { 'max-file': '3', 'max-size': '10m' } }),
        }),
      ]);
      expect([name, Object.keys(service)]).toEqual([
        name,
        expect.not.arrayContaining(['privileged', 'cap_add', 'pid', 'ipc', 'devices']),
      ]);
      expect(JSON.stringify(service)).not.toContain('docker.sock');
    }
  });

  it('asks for the backend before the gateway, and never for the sidecar', async () => {
    const { gateway } = await configOf('node');
    expect(gateway?.depends_on).toEqual({ backend: { condition: 'service_healthy' } });
  });

  it('gives the backend no way out, no log of requests and no telemetry', async () => {
    const { backend } = await configOf('node');
    expect(Object.keys(backend?.networks ?? {})).toEqual(['inside']);
    expect(backend?.command).toContain('--no-enable-log-requests');
    expect(backend?.environment).toMatchObject({ VLLM_NO_USAGE_STATS: '1', DO_NOT_TRACK: '1', HF_HUB_OFFLINE: '1' });
    expect(backend?.volumes).toEqual([expect.stringMatching(/:\/models:ro$/)]);
  });

  it('gives the sidecar of the GPU what NVML needs, and the socket to the gateway for reading', async () => {
    const { sidecar, gateway } = await configOf('node');
    const [device] = sidecar?.deploy?.resources.reservations.devices ?? [];
    expect(device?.capabilities).toEqual(['gpu', 'utility']);
    expect(sidecar?.volumes).toContain('socket:/run/countersign:rw');
    expect(gateway?.volumes).toEqual(['socket:/run/countersign:ro']);
  });

  it('is valid with .env.example as it is', async () => {
    await stageOf(made as Made).compose('--env-file', '.env.example', '--profile', 'node', 'config', '--quiet');
  });
});

// What the gateway may need of a machine: that it says so, refuses to start with less, and that what we ship gives it as much.
import { readFileSync } from 'node:fs';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { type GatewayConfig, loadConfig, NODE_FLAGS } from '../../../gateway/base/config.ts';
import { checkMemory, connectionsWithin, memoryNeeded } from '../../../gateway/limits/memory.ts';
import { COMPOSE } from '../../faults/attacks/compose.ts';

const MiB = 1024 * 1024;
const config = (env: Record<string, string> = {}): GatewayConfig =>
  loadConfig({ BACKEND_URL: 'http://127.0.0.1:8000/v1', ...env });
const read = (file: string) => readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8');
/** V8's limit as the gateway is started, its young generation included. */
const HEAP_BYTES = (Number(/--max-old-space-size=(\d+)/.exec(NODE_FLAGS.join(' '))?.[1]) + 48) * MiB;
const needed = (env: Record<string, string> = {}) =>
  memoryNeeded(config(env), HEAP_BYTES).reduce((sum, { bytes }) => sum + bytes, 0);

function logged(): { log: pino.Logger; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  return { lines, log: pino({ level: 'info' }, { write: (line) => lines.push(JSON.parse(line)) }) };
}

describe('the memory that may be needed', () => {
  it('with the defaults is what compose.yaml, the systemd unit and Kubernetes give', () => {
    const systemd = Number(/^MemoryMax=(\d+)G$/m.exec(read('deploy/systemd/countersign-gateway.service'))?.[1]) * 1024;
    const { gateway } = parse(read('deploy/helm/countersign/values.yaml'));
    const kubernetes = Number(/^(\d+)Gi$/.exec(gateway.resources.limits.memory)?.[1]) * 1024;
    for (const limit_mib of [COMPOSE.memory_bytes / MiB, systemd, kubernetes])
      expect(needed() / MiB).toBeLessThanOrEqual(limit_mib);
  });

  it.each([
    ['MAX_HELD_BYTES', String(512 * MiB)],
    ['MAX_CONCURRENT_REQUESTS', '100000'],
    ['ATTESTATION_STORE_BYTES', String(1024 * MiB)],
  ])('grows with %s, and past the limit the start is refused in words that name it', (name, value) => {
    const { log, lines } = logged();
    const limit = needed();
    expect(() => checkMemory(config(), log, Number.MAX_SAFE_INTEGER)).not.toThrow();
    expect(needed({ [name]: value })).toBeGreaterThan(limit);
    expect(() => checkMemory(config({ [name]: value }), log, limit * 0.9)).toThrow(
      new RegExp(`^the container may have \\d+ MiB of memory.* may need \\d+: .*\\(${name}\\)`),
    );
    const { msg, needed_mib, parts_mib } = lines.at(-1) as { msg: string; needed_mib: number; parts_mib: object };
    const sum = Object.values(parts_mib).reduce((all, part) => all + part, 0);
    expect(msg).toBe('memory');
    // Each part is rounded up.
    expect(sum).toBeGreaterThanOrEqual(needed_mib);
    expect(sum).toBeLessThan(needed_mib + 12);
  });
});

describe('descriptors', () => {
  it('that compose.yaml and the systemd unit give are enough for every connection, and for the backend', () => {
    const systemd = Number(/^LimitNOFILE=(\d+)$/m.exec(read('deploy/systemd/countersign-gateway.service'))?.[1]);
    for (const limit of [COMPOSE.descriptors, systemd]) {
      const { log, lines } = logged();
      expect(connectionsWithin(config(), log, limit)).toBe(config().max_connections);
      expect(lines).toEqual([]);
    }
  });

  it('that are fewer leave room for the backend, and say so', () => {
    const { log, lines } = logged();
    const small = config({ MAX_CONCURRENT_REQUESTS: '1000' });
    expect(connectionsWithin(small, log, 2048)).toBe(2048 - 64 - 1000 + 8);
    expect(connectionsWithin(small, log, 1024)).toBe(480);
    expect(lines.map(({ msg }) => msg)).toEqual(
      Array(2).fill(expect.stringMatching(/^fewer connections than twice MAX_CONCURRENT_REQUESTS: .* to 3064$/)),
    );
    expect(connectionsWithin(small, log, null)).toBe(2000);
  });
});

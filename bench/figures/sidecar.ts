// The way to the sidecar and back: one attestation at a time over the Unix socket, small and large raw.
import { join } from 'node:path';
import { type Link, openLink } from '../../gateway/sidecar/link.ts';
import { buildRaw } from '../../proto/raw.ts';
import { now_us, sleep } from '../clock.ts';
import { stop } from '../process.ts';
import { percentile } from '../stats.ts';
import { startSidecar } from '../targets/ours.ts';
import type { Bench, Figure, Measured } from './figure.ts';

const CONNECT_MS = 15_000;
const KINDS = ['blank', 'simulated'] as const;
const SIZES = { status: 0, '4 KB': 4 * 1024, '256 KB': 256 * 1024 } as const;

export const sidecar: Figure = {
  name: 'sidecar',
  once: true,
  title: (plan) => `Sidecar round trip, one at a time, ${plan.trips} of each`,
  columns: [
    { key: 'p50', title: 'p50 µs', digits: 0 },
    { key: 'p99', title: 'p99 µs', digits: 0 },
  ],
  async round(bench) {
    const rows: Measured[] = [];
    for (const kind of KINDS) rows.push(...(await measure(bench, kind)));
    return rows;
  },
};

async function measure({ where, plan }: Bench, kind: (typeof KINDS)[number]): Promise<Measured[]> {
  const socket = join(where.folder, `trip-${kind}.sock`);
  const child = startSidecar(kind, socket, where.folder);
  try {
    const asker = await connectTo(socket);
    const rows: Measured[] = [];
    for (const [label, bytes] of Object.entries(SIZES)) {
      if (bytes === 0 && kind === 'simulated') continue;
      const took_us: number[] = [];
      let wrong: string | null = null;
      for (let i = -10; i < plan.trips; i++) {
        const id = `trip-${i}`;
        const raw = bytes === 0 ? null : Buffer.from(rawOf(bytes, i));
        const start = now_us();
        const answer = await asker.ask((link) => (raw === null ? link.send({ type: 'status' }) : link.attest(id, raw)));
        if (i >= 0) took_us.push(now_us() - start);
        if (answer.type !== (bytes === 0 ? 'status' : 'attested')) wrong = `answered ${answer.type}`;
      }
      const name =
        bytes === 0 ? 'an empty frame' : `${label} raw, ${kind === 'blank' ? 'unsigned' : 'signed by the twin'}`;
      rows.push({ name, values: { p50: percentile(took_us, 0.5), p99: percentile(took_us, 0.99) }, wrong });
    }
    asker.close();
    return rows;
  } catch (error) {
    return [{ name: `sidecar ${kind}`, values: {}, wrong: (error as Error).message }];
  } finally {
    await stop(child);
  }
}

function rawOf(bytes: number, i: number): string {
  const text = 'the answer said "yes"\n'.repeat(Math.ceil(bytes / 22)).slice(0, bytes);
  return buildRaw({
    request: '{"model":"bench"}',
    response: JSON.stringify({ text }),
    timestamp: 1_700_000_000 + Math.max(0, i),
  });
}

interface Asker {
  ask(send: (link: Link) => void): Promise<{ type: string }>;
  close(): void;
}

async function connectTo(socket: string): Promise<Asker> {
  let answer: ((frame: { type: string }) => void) | null = null;
  for (const end = performance.now() + CONNECT_MS; performance.now() < end; await sleep(50)) {
    const link = await new Promise<Link | null>((resolve) => {
      const opened: Link = openLink(socket, {
        hello: () => resolve(opened),
        frame: (frame) => answer?.(frame),
        gone: () => resolve(null),
      });
    });
    if (link === null) continue;
    return {
      ask: (send) =>
        new Promise((resolve) => {
          answer = resolve;
          send(link);
        }),
      close: () => link.close(),
    };
  }
  throw new Error(`no sidecar within ${CONNECT_MS} ms`);
}

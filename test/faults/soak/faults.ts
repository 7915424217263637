// The soak's faults, one after the other, for as long as it goes on.
import { connect } from 'node:net';
import type { StoreServer } from '../../store/server.ts';
import type { Stage } from '../stage.ts';
import { sleep } from '../words.ts';
import type { Mood } from './backend.ts';

type Fault = (stage: Stage, mood: Mood) => Promise<void>;

const FAULTS: Readonly<Record<string, Fault>> = {
  'sidecar killed': (stage) => stage.restartSidecar('SIGKILL'),
  'backend in trouble': async (_stage, mood) => {
    mood.trouble = 5;
    await sleep(3_000);
    mood.trouble = 0;
  },
  'clients stall': (stage) =>
    stalled(stage, 10, 'POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 99\r\n\r\n{'),
  'sidecar stopped for 2 s': async (stage) => {
    const { child } = stage.sidecar;
    child.kill('SIGSTOP');
    await sleep(2_000);
    child.kill('SIGCONT');
  },
  'silent connections': (stage) => stalled(stage, 50, ''),
  'sidecar told to stop': (stage) => stage.restartSidecar('SIGTERM'),
};

/** Faults of the store that gateways share. */
const storeFaults = (store: StoreServer): Readonly<Record<string, Fault>> => ({
  'store killed': async () => {
    await store.stop();
    await sleep(1_000);
    await store.start();
  },
  'store stopped for 2 s': async () => {
    store.signal('SIGSTOP');
    await sleep(2_000);
    store.signal('SIGCONT');
  },
  'store read-only for 2 s': async () => {
    await store.ask('REPLICAOF', '127.0.0.1', '1');
    await sleep(2_000);
    await store.ask('REPLICAOF', 'NO', 'ONE');
  },
});

/** Connections that go no further for two seconds. */
async function stalled(stage: Stage, count: number, text: string): Promise<void> {
  const { port, hostname } = new URL(stage.url);
  const sockets = Array.from({ length: count }, () => connect(Number(port), hostname));
  for (const socket of sockets) socket.on('error', () => {}).write(text);
  await sleep(2_000);
  for (const socket of sockets) socket.destroy();
}

/** `store` null: there is none. Begins at once; `stop` resolves when the fault that runs is over. @returns how often there was which */
export function startFaults(
  stage: Stage,
  mood: Mood,
  store: StoreServer | null,
  pause_s: number,
): { had: Map<string, number>; stop(): Promise<void> } {
  const had = new Map<string, number>();
  const faults = Object.entries({ ...FAULTS, ...(store === null ? {} : storeFaults(store)) });
  let over = false;
  const running = (async () => {
    for (let n = 0; !over; n++) {
      const [name, fault] = faults[n % faults.length] as [string, Fault];
      await fault(stage, mood);
      had.set(name, (had.get(name) ?? 0) + 1);
      for (let waited = 0; waited < pause_s * 10 && !over; waited++) await sleep(100);
    }
  })();
  return {
    had,
    stop() {
      over = true;
      return running;
    },
  };
}

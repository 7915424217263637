// A process: the client that means well, and the probe of /health. Says how long each of its requests took.
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, ask, CHAT } from '../../support/client.ts';

export interface PeacefulOptions {
  readonly url: string;
  readonly key: string;
  /** Requests with tee. */
  readonly tee: boolean;
  /** Whether chat has connections that it keeps, a few, or a new one for each request. */
  readonly connections: 'kept' | 'new';
  /** The same for the probe. */
  readonly probe_connections: 'kept' | 'new';
  /** How many clients ask at once, each again when it has its answer and has rested. */
  readonly clients: number;
  /** Longer is no answer: /health as a load balancer asks it. */
  readonly health_limit_ms: number;
}

/** What was seen between two questions of the parent. */
export interface Times {
  /** In milliseconds, of requests that were answered as they should be. */
  readonly chat: readonly number[];
  readonly health: readonly number[];
  /** What became of the others, and how many of them. */
  readonly failed: Readonly<Record<string, number>>;
}

const REST_MS = 40;
const PROBE_MS = 200;
/** Longer is no answer: chat as somebody who waits for it. */
const CHAT_LIMIT_MS = 30_000;

if (process.send !== undefined) measure(JSON.parse(process.argv[2] as string));

function measure({ url, key, tee, connections, probe_connections, clients, health_limit_ms }: PeacefulOptions): void {
  let times = { chat: [] as number[], health: [] as number[], failed: {} as Record<string, number> };
  const body = JSON.stringify({ ...CHAT, ...(tee ? { tee } : {}) });
  const headers = { authorization: `Bearer ${key}` };

  /** One after the other, for good. */
  async function repeat(kind: 'chat' | 'health', rest_ms: number, once: () => Promise<Answer>): Promise<never> {
    for (;;) {
      const begin_ms = performance.now();
      // What was asked before the parent took the times does not count.
      const into = times;
      const said = await once().then(
        ({ status, complete }) => (complete ? String(status) : 'cut'),
        (error: NodeJS.ErrnoException) => error.code ?? error.name,
      );
      if (said === '200') into[kind].push(performance.now() - begin_ms);
      else into.failed[`${kind} ${said}`] = (into.failed[`${kind} ${said}`] ?? 0) + 1;
      await sleep(rest_ms);
    }
  }

  const agentOf = (which: 'kept' | 'new') => new Agent({ keepAlive: which === 'kept', maxSockets: 1 });
  for (let i = 0; i < clients; i++) {
    const agent = agentOf(connections);
    void repeat('chat', REST_MS, () =>
      ask(`${url}/v1/chat/completions`, { body, headers, agent, signal: AbortSignal.timeout(CHAT_LIMIT_MS) }),
    );
  }
  const agent = agentOf(probe_connections);
  void repeat('health', PROBE_MS, () =>
    ask(`${url}/health`, { method: 'GET', agent, signal: AbortSignal.timeout(health_limit_ms) }),
  );

  process.on('message', () => {
    process.send?.(times satisfies Times);
    times = { chat: [], health: [], failed: {} };
  });
  process.once('disconnect', () => process.exit());
}

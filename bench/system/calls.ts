// Calls between the bench's processes over Node's own channel: one function call, one answer or one error.
import type { ChildProcess } from 'node:child_process';

interface Call {
  readonly id: number;
  readonly name: string;
  readonly args: readonly unknown[];
}
interface Reply {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

type Calls = object;
// biome-ignore lint/suspicious/noExplicitAny: any function may be called
type AnyFunction = (...args: any[]) => unknown;
export type Remote<T extends Calls> = {
  [K in keyof T]: T[K] extends AnyFunction ? (...args: Parameters<T[K]>) => Promise<Awaited<ReturnType<T[K]>>> : never;
};

/** In the child: answers calls by name, and ends with its parent. */
export function serveCalls(calls: Calls): void {
  process.on('disconnect', () => process.exit(0));
  process.on('message', async (call: Call) => {
    let reply: Reply;
    try {
      const value = await (calls as Record<string, AnyFunction>)[call.name]?.(...call.args);
      reply = { id: call.id, value };
    } catch (error) {
      reply = { id: call.id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
    }
    process.send?.(reply);
  });
}

/** In the parent: the child's functions. A call fails when the child ends or does not answer in time. */
export function remote<T extends Calls>(child: ChildProcess, name: string, timeout_ms: number): Remote<T> {
  const open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let last = 0;
  child.on('message', (reply: Reply) => {
    const call = open.get(reply.id);
    open.delete(reply.id);
    if (reply.error === undefined) call?.resolve(reply.value);
    else call?.reject(new Error(`${name}: ${reply.error}`));
  });
  child.once('exit', () => {
    for (const call of open.values()) call.reject(new Error(`${name} ended`));
  });
  return new Proxy({} as Remote<T>, {
    get: (_target, method) => {
      if (typeof method !== 'string' || method === 'then') return undefined;
      return (...args: unknown[]) =>
        new Promise((resolve, reject) => {
          const id = ++last;
          const timer = setTimeout(() => {
            open.delete(id);
            reject(new Error(`${name}.${method} did not answer within ${timeout_ms} ms`));
          }, timeout_ms);
          const settled =
            <A>(then: (value: A) => void) =>
            (value: A) => {
              clearTimeout(timer);
              then(value);
            };
          open.set(id, { resolve: settled(resolve), reject: settled(reject) });
          child.send({ id, name: method, args } satisfies Call);
        });
    },
  });
}

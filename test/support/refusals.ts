// How a test says that a server refuses something. A server that has ended refuses everything, so the test also asks it for something good,
// on a new connection.
import { request } from 'node:http';
import { request as requestTls } from 'node:https';
import { expect } from 'vitest';

/**
 * Asserts that `refused` rejects for the reason `why`, and then that `good` resolves. `good` must use a new connection. The reason is the
 * error's code or message, or those of its cause.
 */
export async function expectRefused(
  refused: () => Promise<unknown>,
  why: RegExp,
  good: () => Promise<unknown>,
): Promise<void> {
  const error = await refused().then(
    () => new Error('it was not refused'),
    (reason: unknown) => reason as Error,
  );
  expect(reasonOf(error)).toMatch(why);
  await good();
}

function reasonOf(error: Error & { code?: string }): string {
  const own = `${error.name} ${error.code ?? ''} ${error.message}`;
  return error.cause instanceof Error ? `${own}: ${reasonOf(error.cause)}` : own;
}

const ANSWER_MS = 10_000;

/**
 * Asks for /health on a new connection. @returns the status, which is 503 where the backend is down.
 * @throws when there is no response in time, such as from a server that has ended
 */
export function healthOn(url: string): Promise<number> {
  const options = { agent: false, timeout: ANSWER_MS, rejectUnauthorized: false } as const;
  return new Promise((resolve, reject) => {
    const outgoing = (url.startsWith('https:') ? requestTls : request)(new URL('/health', url), options, (incoming) => {
      incoming.resume().on('error', reject);
      incoming.on('end', () => resolve(incoming.statusCode ?? 0));
    });
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no response in ${ANSWER_MS} ms`)));
    outgoing.on('error', reject).end();
  }).catch((cause) => {
    throw new Error(`the server at ${url} does not serve a new connection`, { cause });
  }) as Promise<number>;
}

/** @throws when a gateway does not serve a new connection any more. */
export async function expectServing(url: string): Promise<void> {
  expect([200, 503]).toContain(await healthOn(url));
}

// A stand-in for the service that a processor's vendor has for its certificates: it answers as a test says, path by path.
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'vitest';
import { AttesterError } from '../../../sidecar/common/attester.ts';

export interface Reply {
  readonly body: Buffer | string;
  readonly headers?: Record<string, string>;
}
/** A body, a body with headers, a status, or whatever a test does with the response. */
export type Answer = Buffer | Reply | number | ((response: ServerResponse) => void);

export interface FakeService {
  readonly url: string;
  close(): Promise<void>;
}

/** @param answerTo what it answers to a path, or 404 @param asked gets the path of each request */
export async function startFakeService(
  answerTo: (path: string) => Answer | undefined,
  asked: string[],
): Promise<FakeService> {
  const server = createServer(({ url: path = '' }, response) => {
    asked.push(path);
    const answer = answerTo(path) ?? 404;
    if (typeof answer === 'function') return answer(response);
    if (typeof answer === 'number') return void response.writeHead(answer).end('no');
    const { body, headers } = Buffer.isBuffer(answer) ? { body: answer } : answer;
    response.writeHead(200, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The error of work that fails as an attester does. */
export async function failure(work: Promise<unknown>): Promise<AttesterError> {
  const error = await work.then(
    () => 'no failure',
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(AttesterError);
  return error as AttesterError;
}

// Requests to the verify endpoint.
import { request } from 'node:http';
import { ask } from '../../support/client.ts';

export const PATH = '/~sev_gpu@1.0/verify';
export const verify = (url: string, body: string | Buffer, headers = {}) => ask(`${url}${PATH}`, { body, headers });

/** A request whose head is sent. */
export function announced(url: string, body: string, headers = {}) {
  const length = { 'content-length': body.length };
  const outgoing = request(`${url}${PATH}`, { method: 'POST', headers: { ...length, ...headers } });
  const response = new Promise<number>((resolve, reject) =>
    outgoing.on('response', (incoming) => resolve(incoming.resume().statusCode ?? 0)).on('error', reject),
  );
  outgoing.flushHeaders();
  return { outgoing, response };
}

// One key that asks for session after session, each with a challenge of its own, on many connections.
import { randomBytes } from 'node:crypto';
import { ask } from '../../support/client.ts';
import { attack } from './attack.ts';

interface Options {
  readonly clients: number;
}

attack<Options>(async (given) => {
  const { url, key, options } = given;
  const answers: Record<string, number> = {};
  const client = async () => {
    while (given.goesOn()) {
      const path = `/v1/attestation/session?challenge=${randomBytes(32).toString('hex')}`;
      const { status } = await ask(url + path, { method: 'GET', headers: { authorization: `Bearer ${key}` } });
      answers[status] = (answers[status] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: options.clients }, client));
  return answers;
});

// What a client shows is what was signed: in streams as engines and providers write them.
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { CLIENTS } from './clients.ts';
import { differences, FAULTS } from './faults.ts';
import { CONTRADICTIONS, GENUINE, ODD } from './genuine/index.ts';
import { examine } from './random.ts';
import { signedOf } from './stream.ts';

beforeAll(() => void vi.spyOn(console, 'log').mockImplementation(() => {})); // LangChain's warnings

describe('of a genuine stream, every SDK shows what was signed', () => {
  test.each(GENUINE.map((stream) => [`${stream.name} (${stream.endpoint})`, stream] as const))(
    '%s',
    async (_, stream) => {
      expect(signedOf(stream)).toHaveProperty('response');
      expect(await examine(stream)).toEqual([]);
    },
  );
});

describe('a stream whose final response says something else than was streamed', () => {
  test.each(CONTRADICTIONS.map((stream) => [stream.name, stream] as const))('%s is refused', (_, stream) => {
    expect(signedOf(stream)).toHaveProperty('refused');
  });
});

describe('every known fault of an SDK is still there', () => {
  test.each(FAULTS.map((fault) => [`${fault.client}: ${fault.reason}`, fault] as const))('%s', async (_, fault) => {
    const client = CLIENTS.find(({ name }) => name === fault.client);
    const others = FAULTS.filter((other) => other !== fault);
    const shown = [...GENUINE, ...ODD]
      .filter(({ endpoint }) => endpoint === client?.endpoint)
      .map(async (stream) => {
        const found = await client?.show(stream).catch(() => null);
        return !found || (client && differences(client, stream, found, others).length > 0);
      });
    expect(await Promise.all(shown)).toContain(true);
  });
});

// The keys for sealed prompts that gateways share: the sidecar keeps their seeds unread, and the first proposal of new ones wins.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { eventually, type Folder, type RunningSidecar, startSidecar, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
let running: RunningSidecar;
const open: WebSocket[] = [];

beforeEach(async () => {
  folder = temporaryFolder();
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  running = await startSidecar(folder, { cpu: { collector, required: true } });
});
afterEach(async () => {
  for (const ws of open.splice(0)) ws.terminate();
  await running.close();
  folder.remove();
});

interface Keys {
  readonly n: number;
  readonly seeds: string;
}

/** A gateway that has its hello. */
async function connect() {
  const ws = new WebSocket(`ws+unix://${running.socket}:/`, { perMessageDeflate: false });
  open.push(ws);
  const keys: Keys[] = [];
  const statements: string[] = [];
  let statuses = 0;
  ws.on('message', (data) => {
    const frame = JSON.parse(String(data));
    if (frame.type === 'keys') keys.push(frame);
    if (frame.type === 'session') statements.push(frame.statement);
    if (frame.type === 'status') statuses++;
  });
  await new Promise((resolve, reject) => ws.once('message', resolve).once('error', reject));
  return {
    ws,
    keys,
    hpke: () => JSON.parse(statements.at(-1) ?? '{}').hpke,
    propose: (seeds: string | null, after: number | null, hpke: string) =>
      ws.send(JSON.stringify({ type: 'keys', hpke: [hpke], seeds, after })),
    /** Resolves when the sidecar has read all that was sent before. */
    async read() {
      const before = statuses;
      ws.send(JSON.stringify({ type: 'status' }));
      await eventually(() => statuses > before);
    },
  };
}

it('the first proposal wins, and each gateway that proposes has it', async () => {
  const [one, two, other] = [await connect(), await connect(), await connect()];
  one.propose('b25l', null, 'AAAA');
  await eventually(() => one.keys.length === 1);
  two.propose('dHdv', null, 'BBBB');
  await eventually(() => two.keys.length === 1);
  expect(two.keys).toEqual(one.keys);
  expect(one.keys[0]).toEqual({ type: 'keys', n: expect.any(Number), seeds: 'b25l' });
  // Both propose what follows: one is first, and has to tell the other.
  const { n } = one.keys[0] as Keys;
  two.propose('bmV4dA==', n, 'CCCC');
  await two.read();
  one.propose('bGF0ZQ==', n, 'DDDD');
  await eventually(() => one.keys.length === 3 && two.keys.length === 2);
  const next = { type: 'keys', n: n + 1, seeds: 'bmV4dA==' };
  expect([one.keys.slice(1), two.keys.slice(1)]).toEqual([[next, next], [next]]);
  // The session names keys of the proposals that won.
  await eventually(() => one.hpke() === 'CCCC');
  // Whoever does not share its keys, like a health check, has no seeds.
  await other.read();
  expect(other.keys).toEqual([]);
});

it('are forgotten with their last gateway', async () => {
  const [one, two, other] = [await connect(), await connect(), await connect()];
  one.propose('b25l', null, 'AAAA');
  await one.read();
  two.propose('dHdv', null, 'BBBB');
  await eventually(() => two.keys.length === 1);
  one.ws.terminate();
  const three = await connect();
  three.propose('dGhyZWU=', null, 'CCCC');
  await eventually(() => three.keys.length === 1);
  expect(three.keys[0]?.seeds).toBe('b25l');
  two.ws.terminate();
  three.ws.terminate();
  // `other` is still connected, and shares nothing.
  await eventually(async () => {
    const four = await connect();
    four.propose('Zm91cg==', 7, 'DDDD');
    await eventually(() => four.keys.length === 1);
    four.ws.terminate();
    return four.keys[0]?.seeds === 'Zm91cg==' && four.keys[0].n !== three.keys[0]?.n;
  });
  await other.read();
});

it('a gateway that shares none has its keys named, and tells nobody', async () => {
  const [one, two] = [await connect(), await connect()];
  one.propose(null, null, 'AAAA');
  await eventually(() => one.hpke() === 'AAAA');
  two.propose(null, null, 'BBBB');
  await eventually(() => two.hpke() === 'BBBB');
  expect([one.keys, two.keys]).toEqual([[], []]);
});

it('seeds of another form or of more than 8 KiB are refused', async () => {
  const one = await connect();
  for (const seeds of ['not base64!', '', 'A'.repeat(8 * 1024 + 4), undefined]) {
    const refused = new Promise<string>((resolve) => one.ws.once('message', (data) => resolve(String(data))));
    one.ws.send(JSON.stringify({ type: 'keys', hpke: ['AAAA'], seeds, after: null }));
    expect(JSON.parse(await refused)).toMatchObject({ type: 'failed', code: 'invalid_frame' });
  }
});

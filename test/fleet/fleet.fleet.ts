import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VerificationError, verifyAttestation } from '../../verify/index.ts';
import { type Answer, ask } from '../support/client.ts';
import { eventually, temporaryFolder } from '../support/harness.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { KEYS, type Pod, rootDirOf } from './pod.ts';
import { fleetTools } from './tools.ts';

const tools = await fleetTools();
let fleet: Fleet;

beforeAll(async () => {
  if (tools === null) return;
  fleet = await startFleet(tools);
  await Promise.all(['one', 'two', 'three'].map((name, i) => fleet.add({ name, ip: `127.0.66.${i + 1}` })));
  await eventually(async () => (await tee(question('Is it up?'))).status === 200, 60_000).catch((cause) => {
    throw new Error(`no answer through the picker: ${fleet.front.output()}`, { cause });
  });
}, 1_800_000);
afterAll(() => fleet?.close(), 60_000);

const bearer = (key: string = KEYS[0]) => ({ authorization: `Bearer ${key}` });
const tee = (body: string, url = fleet.front.url, key?: string, signal?: AbortSignal) =>
  ask(`${url}/v1/chat/completions`, { body, headers: bearer(key), ...(signal === undefined ? {} : { signal }) });
const find = (url: string, id: unknown, key?: string) =>
  ask(`${url}/v1/chat/completions/${id}/attestation`, { method: 'GET', headers: bearer(key) });
const plain = (text: string) => question(text).replace('"tee":true', '"stream":true');
const streamed = (text: string) => question(text).replace('{', '{"stream":true,');
const question = (text: string) => `{"tee":true,"model":"m","messages":[{"role":"user","content":"${text}"}]}`;

/** The pod that its engine says it is of. */
function podOf(text: string): Pod {
  const name = /Answered by (\w+)\./.exec(text)?.[1] ?? '';
  const pod = fleet.pods.get(name) ?? gone.get(name);
  if (pod === undefined) throw new Error(`no pod answered: ${text.slice(0, 500)}`);
  return pod;
}
const gone = new Map<string, Pod>();

/** The code of the check that failed, or null. Reference values and revocation of a simulated GPU are nobody's. */
async function refusalOf(
  attestation: string,
  root: string,
  expected: { request?: string; response?: string; transcript?: Uint8Array; event?: boolean },
) {
  try {
    await verifyAttestation(attestation, {
      simulatedRoot: root,
      expected,
      without: { referenceValues: true, revocation: true },
    });
    return null;
  } catch (error) {
    if (!(error instanceof VerificationError)) throw error;
    const failed = error.checks.find(({ status }) => status === 'fail');
    return { code: failed?.code, detail: failed?.detail };
  }
}

/** What a client that checks would say of it. */
async function outcomeOf(answer: Answer, body: string): Promise<string> {
  if (answer.status !== 200) return `error ${answer.status}`;
  const stream = body.includes('"stream":true');
  const ended = stream ? answer.text.includes('"finish_reason":"stop"') : answer.complete;
  if (!ended) return answer.text.includes('"error"') ? 'an error in the stream' : 'cut';
  const attestation = stream ? answer.payloads().find((payload) => payload.includes('"attestation"')) : answer.text;
  if (attestation === undefined) return 'UNPROVEN: an end without an attestation';
  const whole = !stream || answer.payloads().at(-1) === '[DONE]';
  const expected = stream ? { transcript: answer.body } : { response: answer.text };
  // A client that holds the whole stream has the event from it.
  const event = stream ? { event: true } : {};
  const { root } = podOf(answer.text);
  const refusal = await refusalOf(attestation, root, { request: body, ...event, ...(whole ? expected : {}) });
  return refusal === null ? 'proven' : `UNPROVEN: ${refusal.code}`;
}

describe.skipIf(tools === null)('a fleet behind an InferencePool', () => {
  it('has each answer signed by the GPU of the pod that computed it, over the bytes that the client sent', async () => {
    const used = new Set<string>();
    for (let i = 0; i < 24; i++) {
      // What a decoder and encoder of JSON would change: order, numbers, escapes, space.
      const body = `{ "z":1.0, "tee":true,"seed":12345678901234567890,\n"model":"m","a":1e2,"messages":[{"role":"user","content":"<\\u00e9\\/ ${i}>"}]}`;
      const answer = await tee(body);
      expect(answer.status).toBe(200);
      const pod = podOf(answer.text);
      used.add(pod.name);
      expect(await refusalOf(answer.text, pod.root, { request: body, response: answer.text })).toBeNull();
      for (const other of fleet.pods.values())
        if (other !== pod)
          expect((await refusalOf(answer.text, other.root, { request: body }))?.code).toBe('untrusted_root');
      expect(answer.json().attestation.raw).toContain(body);
    }
    expect(used.size).toBeGreaterThan(1);
  });

  it('streams through the picker with a proof over every event', async () => {
    const body = streamed('In pieces.');
    const answer = await tee(body);
    expect([answer.status, answer.complete, answer.payloads().at(-1)]).toEqual([200, true, '[DONE]']);
    const event = answer.payloads().find((payload) => payload.includes('"attestation"')) ?? '';
    const { root } = podOf(answer.text);
    expect(await refusalOf(event, root, { request: body, transcript: answer.body, event: true })).toBeNull();
  });

  it('gives an attestation by its id from any pod and through the picker, to its own tenant alone', async () => {
    const answer = await tee(question('by id'));
    const id = answer.headers['x-attestation-id'];
    const urls = [...[...fleet.pods.values()].map(({ url }) => url), fleet.front.url];
    for (const url of urls)
      for (const name of [id, answer.json().id]) {
        await eventually(async () => (await find(url, name)).status === 200, 5_000);
        expect((await find(url, name)).json()).toEqual(answer.json().attestation);
        expect((await find(url, name, KEYS[1])).status).toBe(404);
      }
  });

  it('sends requests where the signing queue is short', async () => {
    const slow = await fleet.add({ name: 'slow', ip: '127.0.66.9', collectionMs: 1_500 });
    await eventually(async () => podOf((await tee(question('is it known?'))).text) === slow, 60_000);
    // Its signing queue is long for the whole of the load, by requests that go past the picker. The others have more requests than it,
    // without tee, so that it is the queue alone that speaks against it.
    let loading = true;
    const held = Array.from({ length: 8 }, async (_, i) => {
      for (let n = 0; loading; n++) await tee(question(`held ${i} ${n}`), slow.url);
    });
    const busy = new AbortController();
    const others = [...fleet.pods.values()].filter((pod) => pod !== slow);
    for (const { url } of others)
      for (let i = 0; i < 12; i++) void tee(plain('hold'), url, undefined, busy.signal).catch(() => {});
    await eventually(async () => {
      const requests = await Promise.all(others.map((pod) => gaugeOf(pod, 'http_server_active_requests')));
      return (await queueOf(slow)) >= 4 && requests.every((count) => count >= 12);
    }, 10_000);
    const counts = new Map<string, number>();
    await inParallel(4, 60, async (i) => {
      const answer = await tee(question(`load ${i}`));
      expect(answer.status).toBe(200);
      const { name } = podOf(answer.text);
      counts.set(name, (counts.get(name) ?? 0) + 1);
    });
    expect(await queueOf(slow)).toBeGreaterThan(0);
    loading = false;
    for (const pod of others)
      expect(await gaugeOf(pod, 'http_server_active_requests')).toBeGreaterThan(
        await gaugeOf(slow, 'http_server_active_requests'),
      );
    busy.abort();
    console.log(`where 60 tee requests went: ${JSON.stringify(Object.fromEntries(counts))}`);
    // The picker scores what it scraped a moment ago, so that a few may still go there.
    expect(counts.get('slow') ?? 0).toBeLessThanOrEqual(6);
    for (const pod of others) expect(counts.get(pod.name) ?? 0).toBeGreaterThan(2 * (counts.get('slow') ?? 0));
    await Promise.all(held);
    await fleet.remove('slow');
  });

  it('loses nothing that was proven when a pod is killed under load, and passes off nothing unproven', async () => {
    const victim = fleet.pods.get('two') as Pod;
    const outcomes = new Map<string, number>();
    const count = (outcome: string) => void outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    const ids: string[] = [];
    let ended: Promise<void> | null = null;
    await inParallel(8, 160, async (i) => {
      if (i === 60)
        ended = victim.kill().then(async () => {
          gone.set(victim.name, victim);
          // The kubelet's node is gone; its controller says so after a while.
          await new Promise((resolve) => setTimeout(resolve, 1_000));
          await fleet.cluster.report(victim.name, victim.ip, false);
        });
      const body = i % 2 === 0 ? question(`under load ${i}`) : streamed(`under load ${i}`);
      const answer = await tee(body).catch((): Answer | null => null);
      const outcome = answer === null ? 'no answer' : await outcomeOf(answer, body);
      if (outcome === 'proven') ids.push(String(answer?.headers['x-attestation-id']));
      count(outcome);
    });
    await ended;
    console.log(`160 tee requests, a pod killed at the 61st: ${JSON.stringify(Object.fromEntries(outcomes))}`);
    expect([...outcomes.keys()].filter((outcome) => outcome.startsWith('UNPROVEN'))).toEqual([]);
    expect(outcomes.get('proven') ?? 0).toBeGreaterThanOrEqual(60);
    const other = fleet.pods.get('one') as Pod;
    for (const id of ids) await eventually(async () => (await find(other.url, id)).status === 200, 5_000);
    // Once it is reported, no request meets it.
    await eventually(async () => (await tee(question('after'))).status === 200, 10_000);
    for (let i = 0; i < 10; i++) expect((await tee(question(`after ${i}`))).status).toBe(200);
    await fleet.remove('two');
  });
});

describe.skipIf(tools === null)('what can be wrong with a fleet', () => {
  it('a picker that encodes bodies anew: the verifier refuses, and says what may have changed the request', async () => {
    const chart = fleet.chart.settings('countersign-picker')['config.yaml'] ?? '';
    const rewriting = chart.replaceAll('passthrough-parser', 'openai-parser');
    expect(rewriting).not.toBe(chart);
    const front = await fleet.frontWith(rewriting);
    const body = '{"z":1.0,"tee":true,"model":"m","messages":[{"role":"user","content":"Hi"}]}';
    await eventually(async () => (await tee(body, front.url)).status === 200, 60_000);
    const answer = await tee(body, front.url);
    const { root } = podOf(answer.text);
    // The signature itself is right: raw holds what the gateway received.
    expect(await refusalOf(answer.text, root, { response: answer.text })).toBeNull();
    expect(await refusalOf(answer.text, root, { request: body })).toEqual({
      code: 'request_mismatch',
      detail: expect.stringMatching(/router|proxy/),
    });
    await front.close();
  });

  it('two nodes with one root: both verify, and a proof does not tell which of them made it', async () => {
    const folder = temporaryFolder();
    const rootDir = rootDirOf(folder);
    const [a, b] = [
      await fleet.add({ name: 'twina', ip: '127.0.66.21', rootDir }),
      await fleet.add({ name: 'twinb', ip: '127.0.66.22', rootDir }),
    ];
    expect(a.root).toBe(b.root);
    for (const pod of [a, b]) {
      const answer = await tee(question('who?'), pod.url);
      expect(await refusalOf(answer.text, a.root, { response: answer.text })).toBeNull();
    }
    for (const { name } of [a, b]) await fleet.remove(name);
    folder.remove();
  });

  it('a store that answers another tenant: what comes is refused by anybody who compares it with what they asked', async () => {
    const { store } = fleet;
    const [theirs, ours] = [question('theirs'), question('ours')];
    const [one] = fleet.pods.values();
    const other = [...fleet.pods.values()].find((pod) => pod !== one) as Pod;
    const before = new Set(await names());
    const theirAnswer = await tee(theirs, one?.url, KEYS[1]);
    const [theirName] = (await settled(before)).values();
    const known = new Set(await names());
    const answer = await tee(ours, one?.url);
    const ourNames = await settled(known);
    // The store says of each of our names what it has for the other tenant.
    for (const name of ourNames) await store.ask('COPY', theirName ?? '', name, 'REPLACE');
    const got = await find(other.url, answer.headers['x-attestation-id']);
    expect([got.status, got.json()]).toEqual([200, theirAnswer.json().attestation]);
    expect((await refusalOf(got.text, podOf(answer.text).root, { request: ours }))?.code).toBe('request_mismatch');

    async function names(): Promise<string[]> {
      return (await store.ask('KEYS', 'countersign:attestation:*')).match(/countersign:attestation:[\w-]{43}/g) ?? [];
    }
    /** The names that were not there, with the attestation's own first. */
    async function settled(known: Set<string>): Promise<string[]> {
      let fresh: string[] = [];
      await eventually(async () => {
        fresh = (await names()).filter((name) => !known.has(name));
        return fresh.length >= 2;
      }, 5_000);
      const sizes = await Promise.all(
        fresh.map(async (name) => [(await store.ask('STRLEN', name)).length, name] as const),
      );
      return sizes.sort(([x], [y]) => y - x).map(([, name]) => name);
    }
  });
});

/** `total` calls, so many at a time. */
async function inParallel(atOnce: number, total: number, call: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let i = next++; i < total; i = next++) await call(i);
    }),
  );
}

const queueOf = (pod: Pod) => gaugeOf(pod, 'countersign_signing_queue_depth');

async function gaugeOf(pod: Pod, name: string): Promise<number> {
  const { text } = await ask(`http://${pod.ip}:9090/metrics`, { method: 'GET' });
  const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1];
  if (value === undefined) throw new Error(`the gateway exports no ${name}`);
  return Number(value);
}

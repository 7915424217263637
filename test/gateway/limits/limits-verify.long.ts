// The verify endpoint under bodies that take a verifier seconds each.
import { request } from 'node:http';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { type Stage, startStage } from './limits-stage.ts';
import { announced, PATH, verify } from './verify-requests.ts';

vi.setConfig({ testTimeout: 90_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
  stage.service.backend.script = chatAnswer('Hello.');
});
afterAll(() => stage.close());

const attested = async (url: string) => (await chat(url, { ...CHAT, tee: true })).text;

/** Valid JSON that would take a parser long, and a GiB. */
const hostile = (mib: number) => Buffer.from(`[${'{"a":[1]},'.repeat((mib * 1024 * 1024) / 10)}1]`);
/** As much of it as is parsed, each object of another shape, which takes longest. */
const costly = Buffer.from(`[${Array.from({ length: 320_000 }, (_, i) => `{"k${i}":1}`).join()}]`);

describe('the verify endpoint, open to everybody,', () => {
  it('has so many places, which a body takes when it is here', async () => {
    const url = await stage.gateway({ limits: { max_verify_concurrent: 1 } });
    const body = await attested(url);
    const slow = Array.from({ length: 40 }, () => announced(url, body));
    for (const { outgoing } of slow) outgoing.write(body.slice(0, 10));
    for (let i = 0; i < 3; i++) expect((await verify(url, body)).text).toBe('true');
    const got = await Promise.all([verify(url, costly), verify(url, costly), verify(url, costly)]);
    // One is verified, one waits.
    expect(got.map(({ status }) => status).sort()).toEqual([400, 400, 503]);
    for (const refused of got.filter(({ status }) => status === 503)) {
      expectError(refused, 503, 'overloaded');
      expect(refused.headers['retry-after']).toBe('1');
    }
    for (const { outgoing, response } of slow) {
      outgoing.end(body.slice(10));
      expect(await response).toBe(200);
    }
  });

  it('has no more of them for clients that leave', async () => {
    const url = await stage.gateway({ limits: { max_verify_concurrent: 1 } });
    const posted = vi.spyOn(Worker.prototype, 'postMessage');
    const leaver = request(`${url}${PATH}`, { method: 'POST' }).on('error', () => {});
    leaver.end(costly);
    await eventually(() => posted.mock.calls.length === 1, 30_000);
    leaver.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const got = await Promise.all([verify(url, costly), verify(url, costly)]);
    expect(got.map(({ status }) => status).sort()).toEqual([400, 503]);
    posted.mockRestore();
  });

  it('refuses what would take a GiB to parse before it is parsed, and goes on where a little less is', async () => {
    const url = await stage.gateway({});
    const used = process.cpuUsage();
    for (const body of [hostile(15), Buffer.from('['.repeat(15_000_000)), Buffer.from('"'.repeat(15_000_000))]) {
      const { status, text } = await verify(url, body);
      expect([status, JSON.parse(text).error.code]).toEqual([413, 'body_too_large']);
    }
    console.log(`three bodies of 15 MB refused: ${Math.round(sum(process.cpuUsage(used)) / 1e3)} ms of CPU`);
    expectError(await verify(url, costly), 400, 'not_an_attestation');
    // What raw holds is counted too, though for JSON it is one string.
    const attestation = { raw: '['.repeat(1_500_000), nonce: 'a'.repeat(64), token: 't' };
    expectError(await verify(url, JSON.stringify(attestation)), 413, 'body_too_large');
  });

  it('verifies small bodies while large ones wait, which are verified one after the other', async () => {
    const url = await stage.gateway({});
    const body = await attested(url);
    expect((await verify(url, body)).text).toBe('true');
    let done = false;
    const large = Promise.all(Array.from({ length: 3 }, () => verify(url, costly))).then((all) => {
      done = true;
      return all.map(({ status }) => status);
    });
    let small = 0;
    while (!done) {
      expect((await verify(url, body)).text).toBe('true');
      small++;
    }
    expect(small).toBeGreaterThan(3);
    expect(await large).toEqual([400, 400, 400]);
  });

  it('works in a thread of its own: what takes it seconds takes the thread that chats next to nothing', async () => {
    const url = await stage.gateway({});
    expect((await verify(url, '{}')).status).toBe(400);
    const [all, own] = [process.cpuUsage(), process.threadCpuUsage()];
    for (const got of await Promise.all([costly, costly].map((body) => verify(url, body))))
      expect([got.status, got.json().error.code]).toEqual([400, 'not_an_attestation']);
    const total = sum(process.cpuUsage(all));
    const chatting = sum(process.threadCpuUsage(own));
    console.log(
      `verifying 2 costly bodies: ${Math.round(total / 1e3)} ms of CPU, of them ${Math.round(chatting / 1e3)} ms in the thread that chats`,
    );
    // Sending and receiving the bodies, which this test does in the same thread, included.
    expect(chatting / total).toBeLessThan(0.3);
  });

  it.each([
    ['small', '{"hangs":1}'],
    ['large', `{"hangs":"${'1'.repeat(300_000)}"}`],
  ])('ends what takes too long, and it alone: a %s body', async (_name, hanging) => {
    const url = await stage.gateway({ limits: { verify_timeout_ms: 3_000 } });
    const body = await attested(url);
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
    // The thread never says anything of this one.
    const post = Worker.prototype.postMessage;
    const posted = vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker, message) {
      if (!Buffer.from(message.job.body).includes('hangs')) post.call(this, message);
    });
    let done = false;
    const hung = verify(url, hanging).finally(() => {
      done = true;
    });
    let right = 0;
    while (!done) {
      expect((await verify(url, body)).text).toBe('true');
      right++;
    }
    expectError(await hung, 503, 'overloaded');
    expect(right).toBeGreaterThan(3);
    posted.mockRestore();
    expectError(await verify(url, hanging), 400, 'not_an_attestation');
  });
});

const sum = ({ user, system }: { user: number; system: number }) => user + system;

// ATTESTER=nvattest over a scripted nvattest: what a program can do wrong.
import { existsSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { failureOf, never } from '../../../support/attest.ts';
import { at, attested, calls, collected, create, evidences, isAlive, nonce, say } from './nvattest-fake.ts';

describe('what a program can do wrong', () => {
  const rejects = async (words: RegExp, retryable: boolean, options = {}) => {
    const attester = await create(options);
    return async () => {
      const error = await failureOf(attester.attest(nonce, never));
      expect(error.message).toMatch(words);
      expect(error.retryable).toBe(retryable);
      for (const { cwd, pid } of calls()) {
        expect(existsSync(cwd)).toBe(false);
        expect(isAlive(pid)).toBe(false);
      }
    };
  };

  test.each([
    ['no output', '', /^nvattest_garbage: .*exit code 0/],
    ['words', 'GPU attestation was successful', /^nvattest_garbage: /],
    ['half its JSON', JSON.stringify(attested(nonce)).slice(0, 300), /^nvattest_garbage: /],
    ['two answers', JSON.stringify(attested(nonce)).repeat(2), /^nvattest_garbage: /],
    ['no code', JSON.stringify({ claims: [], detached_eat: [] }), /^nvattest_garbage: /],
  ])('prints %s', async (_, output, words) => {
    const check = await rejects(words, true);
    say('attest.out', output);
    await check();
  });

  test('answers for another nonce', async () => {
    const check = await rejects(/^wrong_nonce: the token/, false);
    say('attest.out', attested('ab'.repeat(32)));
    await check();
  });

  test('collects over another nonce', async () => {
    const check = await rejects(/^wrong_nonce: nvattest collected/, false);
    say('collect-evidence.out', collected((await evidences(nonce)).map((one) => ({ ...one, nonce: 'ab'.repeat(32) }))));
    await check();
  });

  test('says Ok over a token that says no', async () => {
    const check = await rejects(/^refused: /, false);
    say('attest.out', attested(nonce, { result: false }));
    await check();
  });

  test('says Ok and ends with an error', async () => {
    const check = await rejects(/^nvattest_died: .*exit code 3/, true);
    say('attest.exit', '3');
    await check();
  });

  test('loses a GPU', async () => {
    say('collect-evidence.first.out', collected(await evidences(nonce, 2)));
    const check = await rejects(/^wrong_device_count: evidence of 1 GPUs where there were 2/, false);
    await check();
  });

  test('appraises one GPU of two', async () => {
    say('collect-evidence.out', collected(await evidences(nonce, 2)));
    await (await rejects(/^wrong_device_count: the token speaks of 1 GPUs of 2/, false))();
  });

  test('crashes', async () => {
    const check = await rejects(/^nvattest_died: .*SIGSEGV/, true);
    say('attest.does', 'crash');
    await check();
  });

  test('hangs', async () => {
    const check = await rejects(/^nvattest_timeout: nvattest attest: no end within 500 ms/, true, {
      run_deadline_ms: 500,
    });
    say('attest.does', 'hang');
    await check();
  });

  test('prints without end', async () => {
    const check = await rejects(/^nvattest_garbage: .*more than/, true);
    say('attest.does', 'flood');
    await check();
  });

  test('is not there, or not a program', async () => {
    expect(await failureOf(create({ program: at('none') }))).toMatchObject({
      retryable: false,
      message: expect.stringMatching(/no_nvattest: .*install the package nvattest/),
    });
    writeFileSync(at('plain'), 'x', { mode: 0o644 });
    expect((await failureOf(create({ program: at('plain') }))).message).toContain('not_executable');
  });

  test('an aborted request kills the program and throws its reason', async () => {
    const attester = await create();
    say('collect-evidence.does', 'hang');
    const before = calls().length;
    const abort = new AbortController();
    const reason = new Error('nobody waits');
    const answer = attester.attest(nonce, abort.signal).catch((error: unknown) => error);
    await expect.poll(() => calls().length, { timeout: 5_000 }).toBe(before + 1);
    abort.abort(reason);
    expect(await answer).toBe(reason);
    const last = calls().at(-1);
    expect(isAlive(last?.pid ?? 0)).toBe(false);
    expect(existsSync(last?.cwd ?? '/')).toBe(false);
  });
});

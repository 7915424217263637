// What is held for its proof, whatever stands around it in the same read.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { topLevelMembers, withoutMember } from '../../../proto/json.ts';
import { DONE, delta, finish, role, stream, usage } from '../../support/backend.ts';
import { CHAT, chat, payloadsOf } from '../../support/client.ts';
import { useService } from '../../support/service.ts';

const TEE = { ...CHAT, stream: true, tee: true };
const RUNS = 150;

const commentsOf = (text: string) => text.split('\n\n').filter((one) => one.startsWith(':'));

/** The payload as the backend sent it, and whether it carried the attestation. */
function restored(payload: string): { payload: string; proof: boolean } {
  if (!payload.startsWith('{')) return { payload, proof: false };
  const members = topLevelMembers(payload);
  const at = members.findIndex(({ key }) => key === 'attestation');
  return at < 0 ? { payload, proof: false } : { payload: withoutMember(payload, members, at), proof: true };
}

describe('a finish chunk', () => {
  const service = useService();

  const text = fc.constantFrom('a', 'b\n', '"', 'ü');
  const some = (index: number) =>
    fc.array(
      fc.oneof(
        { weight: 4, arbitrary: text.map((text) => delta(text, index)) },
        { weight: 3, arbitrary: fc.constantFrom(': ping\n\n', ': another\n\n') },
      ),
      { maxLength: 6 },
    );
  const late = fc.array(fc.constantFrom(': late\n\n', usage()), { maxLength: 3 });
  const one = fc.tuple(some(0), late).map(([before, after]) => ({
    n: 1,
    events: [role(), ...before, finish(), ...after, DONE],
  }));
  const two = fc.tuple(some(0), some(1), late).map(([before, between, after]) => ({
    n: 2,
    events: [role(), role(1), ...before, finish(), ...between, finish('stop', 1), ...after, DONE],
  }));
  /** Where the network cuts between events: the length of each read, in events. */
  const reads = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 30, maxLength: 30 });

  it('goes out once, the last of its choices with the attestation, wherever reads begin and end', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(one, two), reads, async ({ n, events }, lengths) => {
        const chunks: string[] = [];
        for (let at = 0; at < events.length; at += lengths[chunks.length - 1] ?? 1)
          chunks.push(events.slice(at, at + (lengths[chunks.length] ?? 1)).join(''));
        service.backend.script = stream(chunks, 2);
        const got = await chat(service.gateway.url, { ...TEE, n });
        const seen = got.payloads().map(restored);
        const text = events.join('');
        expect(seen.map(({ payload }) => payload)).toEqual(payloadsOf(text));
        const last = payloadsOf(finish('stop', n - 1))[0];
        expect(seen.filter(({ proof }) => proof)).toEqual([{ payload: last, proof: true }]);
        expect(commentsOf(got.text).filter((one) => !OWN_COMMENTS.has(one))).toEqual([]);
      }),
      { numRuns: RUNS },
    );
  }, 60_000);
});

/** What a backend says beside its data is not passed on. */
const OWN_COMMENTS = new Set([': waiting', ': attesting']);

describe('a finish chunk whose attestation does not come', () => {
  const service = useService({ ATTEST_TIMEOUT_MS: '1000' }, { collectionMs: 5_000 });

  it.each([
    ['a chunk before it and a comment behind it', [role(), `${delta('b\n') + finish()}: ping\n\n`, DONE]],
    ['a comment on either side', [role(), delta('a'), `: one\n\n${finish()}: two\n\n`, DONE]],
    ['its comment and the end', [role(), `${delta('a')}${finish()}: ping\n\n${DONE}`]],
  ])('is never seen, in one read with %s', async (_, pieces) => {
    service.backend.script = stream(pieces, 30);
    const got = await chat(service.gateway.url, TEE);
    expect(got.text).not.toContain('"stop"');
    expect(got.text).toContain('"attestation_unavailable"');
    expect(commentsOf(got.text).filter((one) => !OWN_COMMENTS.has(one))).toEqual([]);
  });
});

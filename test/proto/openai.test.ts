import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chatRequestSchema, completionRequestSchema, isPrompt, MAX_MESSAGES } from '../../proto/openai.ts';

const ANYTHING = [
  null,
  true,
  false,
  0,
  1,
  1.5,
  129,
  '',
  'a',
  'a'.repeat(64),
  'a'.repeat(65),
  'a'.repeat(513),
  [],
  {},
  [{}],
];
const anything = fc.constantFrom(...ANYTHING);
/** As it comes from a client: a member that is not there is none. */
const parsed = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('a chat request', () => {
  it.each([
    ['a model that is too long', { model: 'a'.repeat(513) }],
    ['a model that is a number', { model: 1 }],
    ['stream that is no boolean', { stream: 'true' }],
    ['tee that is no boolean', { tee: 1 }],
    ['no messages', { messages: [] }],
    ['messages that are none', { messages: { length: 1 } }],
    ['too many messages', { messages: Array(MAX_MESSAGES + 1).fill({ role: 'user' }) }],
    ['a message that is none', { messages: [{ role: 'user' }, null] }],
    ['a message that is a list', { messages: [[]] }],
    ['a message without a role', { messages: [{}] }],
    ['an empty role', { messages: [{ role: '' }] }],
    ['a role that is too long', { messages: [{ role: 'a'.repeat(65) }] }],
    ['a role that is a number', { messages: [{ role: 1 }] }],
  ])('may not have %s', (_, changed) => {
    const value = { model: 'm', messages: [{ role: 'user' }] };
    expect(chatRequestSchema.safeParse(value).success).toBe(true);
    expect(chatRequestSchema.safeParse({ ...value, ...changed }).success).toBe(false);
  });
});

describe('a prompt', () => {
  const schema = completionRequestSchema.shape.prompt;
  const item = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.array(fc.oneof(fc.integer(), anything), { maxLength: 3 }),
    anything,
  );
  const lists = fc.oneof(
    fc.array(fc.string()),
    fc.array(fc.integer()),
    fc.array(fc.array(fc.integer())),
    fc.array(item, { maxLength: 4 }),
  );

  it('is one by hand exactly where it is one by the schema', () => {
    const seen = { yes: 0, no: 0 };
    fc.assert(
      fc.property(fc.oneof(lists, item), (made) => {
        const value = parsed(made);
        const said = isPrompt(value);
        seen[said ? 'yes' : 'no']++;
        expect(said).toBe(schema.safeParse(value).success);
      }),
      { numRuns: 5_000 },
    );
    expect(Math.min(seen.yes, seen.no)).toBeGreaterThan(500);
  });

  it('may be many tokens, and as many texts or lists as a conversation has messages', () => {
    const many = (length: number, of: unknown) => Array.from({ length }, () => of);
    for (const [value, right] of [
      [many(MAX_MESSAGES + 1, 7), true],
      [many(MAX_MESSAGES, 'a'), true],
      [many(MAX_MESSAGES + 1, 'a'), false],
      [many(MAX_MESSAGES, [7]), true],
      [many(MAX_MESSAGES + 1, [7]), false],
      [[2 ** 53], false],
      [[[1.5]], false],
      [undefined, true],
    ] as const)
      expect([isPrompt(value), schema.safeParse(value).success]).toEqual([right, right]);
  });
});

// A transcript without its words: of each turn raw's hash, its proof, and a salted hash of each message. The salt is kept by nobody: what a
// message was is proven by the whole raw only, which has the hash that stands here.
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { isObject } from '../../proto/json.ts';
import { checkBatch } from '../../verify/binding/batch.ts';
import { CheckFailure } from '../../verify/index.ts';
import type { Conversation, Item } from './items.ts';

export interface Redacted {
  readonly raw_sha256: string;
  /** Whether the proof beside it is for this hash. */
  matches(): Promise<boolean>;
  readonly endpoint: string | null;
  readonly conversation: Conversation | null;
}

/** An item as it is written: kind, hash, id, content. */
type Written = readonly [Item['kind'], string, string | null, string];

const KINDS: readonly unknown[] = ['instructions', 'user', 'answer', 'call', 'result', 'aside', 'reference'];

/** Makes the lines of one redacted transcript. @returns null: the turn has no raw */
export function redactor(): (
  value: Readonly<Record<string, unknown>>,
  endpoint: string | null,
  conversation: Conversation | null,
) => object | null {
  const salt = randomBytes(32);
  const salted = (text: string): string => createHmac('sha256', salt).update(text).digest('base64url');
  const id = (text: string | null) => (text === null ? null : salted(`id ${text}`));
  const write = ({ kind, hash, id: own, content }: Item): Written => [kind, salted(hash), id(own), salted(content)];
  return (value, endpoint, conversation) => {
    const { raw, ...proof } = (isObject(value.attestation) ? value.attestation : value) as Record<string, unknown>;
    if (typeof raw !== 'string') return null;
    const { instructions, items, responses, responseId, previous, conversationId, byId } = conversation ?? {};
    return {
      redacted: 1,
      raw_sha256: createHash('sha256').update(raw).digest('hex'),
      endpoint,
      attestation: proof,
      ...(conversation === null
        ? {}
        : {
            conversation: {
              instructions: instructions?.map(write),
              items: items?.map(write),
              responses: responses?.map((response) => response.map(write)),
              responseId: id(responseId ?? null),
              previous: id(previous ?? null),
              conversationId: id(conversationId ?? null),
              byId: byId?.map(([name, item]) => [id(name), write(item)]),
            },
          }),
    };
  };
}

/** null: the line is not redacted. */
export function readRedacted(value: Readonly<Record<string, unknown>> | null): Redacted | null {
  if (value?.redacted !== 1 || !isObject(value.attestation)) return null;
  const { raw_sha256, attestation, endpoint, conversation } = value;
  if (typeof raw_sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(raw_sha256)) return null;
  const { nonce, batch } = attestation as { nonce?: unknown; batch?: Record<string, unknown> };
  return {
    raw_sha256,
    async matches() {
      if (batch === undefined) return nonce === raw_sha256;
      const checked = await checkBatch(batch, raw_sha256, String(nonce)).catch((error: unknown) => error);
      if (checked instanceof Error && !(checked instanceof CheckFailure)) throw checked;
      return !(checked instanceof Error);
    },
    endpoint: typeof endpoint === 'string' ? endpoint : null,
    conversation: isObject(conversation) ? readConversation(conversation) : null,
  };
}

function readConversation({
  responseId,
  previous,
  conversationId,
  byId,
  ...given
}: Record<string, unknown>): Conversation {
  const text = (one: unknown) => (typeof one === 'string' ? one : null);
  const responses = Array.isArray(given.responses) ? given.responses.map(readItems) : [[]];
  const pairs = Array.isArray(byId) ? byId.filter(Array.isArray) : [];
  return {
    instructions: readItems(given.instructions),
    items: readItems(given.items),
    responses: responses.length === 0 ? [[]] : responses,
    model: null,
    responseId: text(responseId),
    previous: text(previous),
    conversationId: text(conversationId),
    byId: pairs.flatMap(([id, item]) => readItems([item]).map((one) => [String(id), one] as const)),
  };
}

function readItems(given: unknown): Item[] {
  const rows = Array.isArray(given) ? given.filter(Array.isArray) : [];
  return rows.flatMap(([kind, hash, id, content]) =>
    KINDS.includes(kind) && typeof hash === 'string'
      ? {
          kind,
          hash,
          id: typeof id === 'string' ? id : null,
          name: kind,
          content: String(content),
          length: 0,
          text: '',
        }
      : [],
  );
}

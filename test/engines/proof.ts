// Takes an attested answer apart, byte for byte, and has its attestation verified over HTTP.
import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { splitRaw } from '../../proto/attestation/raw.ts';
import { topLevelMembers, withoutMember } from '../../proto/json.ts';
import { foldPayloads } from '../../proto/stream/fold.ts';
import { type Answer, ask } from '../support/client.ts';

interface Cut {
  /** The text as the engine sent it. */
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: an attestation as it came
  readonly attestation: any;
}

/** A whole answer is proven. Gives the engine's own bytes back. */
export async function provenWhole(gateway: string, request: string, answer: Answer): Promise<string> {
  const { text, attestation } = cut(answer.text);
  expect(attestation, answer.text.slice(0, 500)).not.toBeNull();
  const raw = splitRaw(attestation.raw);
  expect(raw.request).toBe(request);
  expect(raw.response).toBe(text);
  expect(raw.stream).toBeUndefined();
  await verified(gateway, attestation);
  return text;
}

/** A stream is proven, its attestation on its last finish chunk. Gives the completion that its chunks fold into. */
export async function provenStream(gateway: string, request: string, answer: Answer): Promise<string> {
  const payloads = answer.payloads();
  expect(payloads.pop(), answer.text.slice(-500)).toBe('[DONE]');
  const cuts = payloads.map(cut);
  const carriers = cuts.filter((one) => one.attestation !== null);
  expect(carriers).toHaveLength(1);
  expect(carriers[0]).toBe(cuts.findLast((one) => finishes(one.text)));
  const { attestation } = carriers[0] as Cut;
  const raw = splitRaw(attestation.raw);
  const texts = cuts.map((one) => one.text);
  expect(raw.request).toBe(request);
  expect(raw.stream).toEqual({ events: texts.length, sha256: digest(texts) });
  expect(raw.response).toBe(foldPayloads(texts));
  await verified(gateway, attestation);
  return raw.response;
}

function cut(text: string): Cut {
  if (!text.startsWith('{')) return { text, attestation: null };
  const members = topLevelMembers(text);
  const at = members.findIndex((member) => member.key === 'attestation');
  if (at < 0) return { text, attestation: null };
  return { text: withoutMember(text, members, at), attestation: JSON.parse(text).attestation };
}

function finishes(payload: string): boolean {
  const choices: { finish_reason: string | null }[] = JSON.parse(payload)?.choices ?? [];
  return choices.some((choice) => choice.finish_reason !== null);
}

function digest(payloads: readonly string[]): string {
  const hash = createHash('sha256');
  for (const payload of payloads) hash.update(`${payload}\n`);
  return hash.digest('hex');
}

async function verified(gateway: string, attestation: object): Promise<void> {
  const verdict = await ask(`${gateway}/~sev_gpu@1.0/verify`, { body: JSON.stringify(attestation) });
  expect(verdict.json()).toBe(true);
}

// What an attestation must be wherever a client found it: the hash of raw, raw the very exchange, and accepted by the verify endpoint.
import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { splitRaw } from '../../proto/attestation/raw.ts';
import { ask } from '../support/client.ts';
import { expectedRaw } from './scripts.ts';
import type { Service } from './service.ts';

export interface Received {
  /** The answer's text, or the arguments of its tool call, as the client handed it out. */
  readonly text: string;
  /** The request's body as the client sent it. */
  readonly sent: string;
}

interface Choice {
  readonly text?: string;
  readonly message?: {
    readonly content: string | null;
    readonly tool_calls?: readonly { readonly function: { readonly arguments: string } }[];
  };
}

/** Fails the test unless `found` proves what the client sent and received. */
export async function expectProof(service: Service, found: unknown, received: Received): Promise<Attestation> {
  const attestation = found as Attestation;
  expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw, 'utf8').digest('hex'));

  const { request, response, stream } = splitRaw(attestation.raw);
  expect(request).toBe(received.sent);
  const completion = JSON.parse(response) as { id: string; choices: readonly Choice[] };
  expect(textOf(completion.choices[0])).toBe(received.text);

  const scripted = service.sent.get(completion.id);
  if (scripted !== undefined) expect({ response, stream }).toEqual({ stream: undefined, ...expectedRaw(scripted) });

  expect(await verify(service, attestation)).toEqual({ status: 200, text: 'true' });
  return attestation;
}

export async function verify(service: Service, attestation: Attestation): Promise<{ status: number; text: string }> {
  const { status, text } = await ask(service.url.replace(/\/v1$/, '/~sev_gpu@1.0/verify'), {
    body: JSON.stringify(attestation),
  });
  return { status, text };
}

function textOf(choice: Choice | undefined): string | null | undefined {
  const { message } = choice ?? {};
  return message?.tool_calls?.[0]?.function.arguments ?? message?.content ?? choice?.text;
}

/** A fetch for JavaScript clients that keeps what goes out: the last body, and the id of its attestation. */
export interface Recorder {
  readonly fetch: typeof fetch;
  body(): string;
  attestationId(): string | null;
}

export function recorder(): Recorder {
  let body = '';
  let id: string | null = null;
  return {
    async fetch(input, init) {
      if (typeof init?.body === 'string') body = init.body;
      const response = await fetch(input, init);
      id = response.headers.get('x-attestation-id');
      return response;
    },
    body: () => body,
    attestationId: () => id,
  };
}

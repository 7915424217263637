// Nasty streams with a proof in them, and the three ways on which one reaches a client.

import type { RawParts } from '../../proto/attestation/raw.ts';
import { foldPayloads } from '../../proto/stream/fold.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import { VerificationError, type Verified, verifyAttestation } from '../../verify/index.ts';
import { AT, attest, EXCHANGE, PAYLOADS, REQUEST, simulatedRoot, streamed } from '../verify/maker.ts';
import { cutAt, encode, type Manner, PROOF, type Recipe, textOf } from './grammar.ts';
import { type Answer, readByStandard, streamHash, withoutProof } from './reading.ts';

/** What the client asks: the same in every stream, so that a proof of it can be made. */
export const BODY = REQUEST.replace('"tee"', '"stream":true,"tee"');
const URL = 'http://127.0.0.1/v1/chat/completions';
const OPTIONS = { at: AT, simulatedRoot };

/** A stream as its server sends it. */
export interface Sent {
  /** With {@link PROOF} where the attestation stands. */
  readonly text: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly answer: Answer;
  /** The attestation that stands in it, if one does. */
  readonly attestation: string;
}

const genuine = attest({ ...(await streamed()), request: BODY }).then((made) => JSON.stringify(made));
const proofs = new Map<string, Promise<string>>();
const MAX_PROOFS = 1000;

export const sendRecipe = (recipe: Recipe): Promise<Sent> => send(textOf(recipe), recipe);

export async function send(text: string, { signed, status, type, cuts, broken }: Manner): Promise<Sent> {
  const attestation = await (signed === 'genuine' ? genuine : signedAsRead(text));
  const bytes = encode(text.replaceAll(PROOF, attestation));
  return {
    text,
    bytes,
    attestation,
    answer: { status, type, pieces: cutAt(bytes, cuts), broken: broken === null ? null : errorOf(broken) },
  };
}

const errorOf = (name: string): Error => Object.assign(new Error(`${name}: the connection broke`), { name });

/** By an operator who has a GPU sign what the stream says by the standard, whatever that is. */
async function signedAsRead(text: string): Promise<string> {
  const { payloads } = readByStandard(encode(text.replaceAll(PROOF, '{}')));
  const hashed = withoutProof(payloads);
  const stream = { events: hashed.length, sha256: streamHash(hashed) };
  const parts: RawParts = { ...EXCHANGE, request: BODY, response: folded(hashed), stream };
  let made = proofs.get(stream.sha256);
  if (made === undefined) {
    if (proofs.size >= MAX_PROOFS) proofs.clear();
    made = attest(parts).then((one) => JSON.stringify(one));
    proofs.set(stream.sha256, made);
  }
  return made;
}

function folded(payloads: readonly string[]): string {
  try {
    return foldPayloads(payloads);
  } catch {
    return foldPayloads(PAYLOADS); // what does not fold is refused for it
  }
}

/** What the client of a verifying fetch is handed. */
export interface Delivered {
  readonly answer: Answer;
  /** Of the proof that was verified before the end. */
  readonly verified: Verified | null;
}

const NULL_BODY = [204, 205, 304];

export async function throughFetch({ answer }: Sent): Promise<Delivered> {
  let verified: Verified | null = null;
  const fetch = verifyingFetch({
    ...OPTIONS,
    fetch: async () => responseOf(answer),
    onVerified: (proof) => {
      verified = proof;
    },
  });
  const pieces: Uint8Array[] = [];
  let { status, type } = answer;
  let broken: Error | null = null;
  try {
    const response = await fetch(URL, { method: 'POST', body: BODY });
    status = response.status;
    type = response.headers.get('content-type') ?? '';
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) pieces.push(piece);
  } catch (error) {
    broken = error as Error;
  }
  return { answer: { status, type, pieces, broken }, verified };
}

export function responseOf({ status, type, pieces, broken }: Answer): Response {
  const waiting = [...pieces];
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const piece = waiting.shift();
      if (piece !== undefined) controller.enqueue(piece);
      else if (broken !== null) controller.error(broken);
      else controller.close();
    },
  });
  const headers = type === '' ? {} : { 'content-type': type };
  return new Response(NULL_BODY.includes(status) ? null : (body as ConstructorParameters<typeof Response>[0]), {
    status,
    headers,
  });
}

/** The stream that a proof says was signed, where the saved bytes are found to be it; else the code of the check that fails. */
export async function savedVerdict({ attestation, bytes }: Sent): Promise<{ signed: string } | { refused: string }> {
  try {
    const verified = await verifyAttestation(attestation, { ...OPTIONS, expected: { transcript: bytes } });
    return { signed: verified.exchange.stream?.sha256 ?? '' };
  } catch (error) {
    if (error instanceof VerificationError) return { refused: error.code };
    throw error;
  }
}

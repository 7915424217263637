// `countersign replay`: asks the signed request again, byte for byte, verifies each new proof, and says where the responses part.
import { readLimited } from '../gpu/collateral.ts';
import { type Exchange, VerificationError, type Verified, type VerifyOptions, verifyAttestation } from '../index.ts';
import { UsageError } from './args.ts';
import { MAX_INPUT_BYTES } from './input.ts';
import { plain } from './report.ts';

export interface Replay {
  readonly baseUrl: string;
  readonly times: number;
  readonly apiKey: string | null;
  readonly json: boolean;
  readonly options: VerifyOptions;
}

/** Of one time that the request was asked again. `parts` names a place in the response, and no text of it. */
type Outcome =
  | { readonly outcome: 'identical' }
  | { readonly outcome: 'different'; readonly parts: string }
  | { readonly outcome: 'unproven'; readonly code: string; readonly incomplete: boolean }
  | { readonly outcome: 'failed'; readonly reason: string };

/** How old the new proof may be: the answer is made now, and clocks differ. */
const MAX_AGE_SECONDS = 300;

/** @param input an attestation, or a saved answer or stream that carries one. @returns the exit status. @throws {UsageError} */
export async function replay(input: string | Uint8Array, { json, ...asked }: Replay): Promise<number> {
  const first = await verifyAttestation(input, asked.options).catch(refusal);
  if ('code' in first) {
    console.error(`countersign: the proof in FILE does not verify: ${first.code}`);
    return first.incomplete ? 3 : 1;
  }
  const seen = new Set([textOf(first)]);
  const outcomes: Outcome[] = [];
  for (let i = 1; i <= asked.times; i++) {
    const outcome = await once(first.exchange, seen, asked);
    outcomes.push(outcome);
    if (!json) console.log(`${i}: ${plain(inWords(outcome))}`);
  }
  const identical = outcomes.filter(({ outcome }) => outcome === 'identical').length;
  if (json) console.log(JSON.stringify({ endpoint: first.exchange.endpoint, identical, outcomes }, null, 2));
  else console.log(`\n${identical} of ${outcomes.length} identical`);
  if (identical === outcomes.length) return 0;
  const wrong = outcomes.some((one) => one.outcome !== 'identical' && !(one.outcome === 'unproven' && one.incomplete));
  return wrong ? 1 : 3;
}

function refusal(error: unknown): { code: string; incomplete: boolean } {
  if (!(error instanceof VerificationError)) throw error;
  return { code: error.code, incomplete: error.incomplete };
}

function inWords(outcome: Outcome): string {
  if (outcome.outcome === 'different') return `different: parts at ${outcome.parts}`;
  if (outcome.outcome === 'unproven') return `not proven: ${outcome.code}`;
  return outcome.outcome === 'failed' ? outcome.reason : 'proven, identical';
}

async function once(
  { endpoint, request, response }: Exchange,
  seen: Set<string>,
  { baseUrl, apiKey, options }: Omit<Replay, 'json'>,
): Promise<Outcome> {
  const { tee, stream } = JSON.parse(request) as { tee?: unknown; stream?: unknown };
  const answer = await fetch(urlOf(baseUrl, endpoint), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}`, 'x-api-key': apiKey }),
      // What was asked for by a header is not in the signed request.
      ...(tee === undefined ? { 'x-tee': '1' } : {}),
    },
    body: request,
  }).catch(() => null);
  if (answer === null) throw new UsageError(`--base-url ${baseUrl}: cannot be reached`);
  if (answer.status !== 200) return { outcome: 'failed', reason: `the service answered ${answer.status}` };
  const bytes = await readLimited(answer, MAX_INPUT_BYTES).catch(() => null);
  if (bytes === null) return { outcome: 'failed', reason: 'the answer broke off, or is too large' };
  const policy = { ...options.policy, maxAgeSeconds: MAX_AGE_SECONDS };
  const expected = { endpoint, request };
  // As of now, whatever time the saved proof was checked at.
  const again = await verifyAttestation(stream === true ? bytes : new TextDecoder().decode(bytes), {
    ...options,
    at: undefined,
    policy,
    expected,
  }).catch(refusal);
  if ('code' in again) return { outcome: 'unproven', ...again };
  if (seen.size === seen.add(textOf(again)).size)
    return { outcome: 'unproven', code: 'attestation_seen', incomplete: false };
  const parts = firstDifference(JSON.parse(response), JSON.parse(again.exchange.response));
  return parts === null ? { outcome: 'identical' } : { outcome: 'different', parts };
}

/**
 * An older answer to the same request has the same challenge, and a new one within the same second may have the same raw: two are
 * told apart by what a device signed, which has a number of its own each time.
 */
const textOf = ({ attestation }: Verified): string => JSON.stringify(attestation);

/** A base URL may end in /v1 or stand before it. */
function urlOf(baseUrl: string, endpoint: string): string {
  const base = baseUrl.replace(/\/+$/, '');
  return base.endsWith('/v1') ? base + endpoint.slice('/v1'.length) : base + endpoint;
}

/** Members that name this answer, or say how it was served: they differ between two that are the same. */
const OF_ONE_ANSWER = new Set([
  'id',
  'call_id',
  'item_id',
  'created',
  'created_at',
  'completed_at',
  'system_fingerprint',
  'service_tier',
  'usage',
  'timings',
]);

/** Where two responses part first: `choices[0].message.content, character 17`; null: nowhere. */
export function firstDifference(a: unknown, b: unknown, place = ''): string | null {
  if (typeof a === 'string' && typeof b === 'string') return a === b ? null : `${place}, character ${parting(a, b)}`;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return Object.is(a, b) ? null : place;
  if (Array.isArray(a) !== Array.isArray(b)) return place;
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => !OF_ONE_ANSWER.has(name));
  for (const name of names) {
    const at = Array.isArray(a) ? `${place}[${name}]` : place === '' ? name : `${place}.${name}`;
    const [one, other] = [a, b].map((value) => (value as Record<string, unknown>)[name]);
    const parts = firstDifference(one, other, at);
    if (parts !== null) return parts;
  }
  return null;
}

/** The first character, counted from 1, in which they differ. */
function parting(a: string, b: string): number {
  const [one, other] = [[...a], [...b]];
  const at = one.findIndex((character, i) => character !== other[i]);
  return (at < 0 ? one.length : at) + 1;
}

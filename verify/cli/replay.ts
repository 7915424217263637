// `countersign replay`: sends the signed request again, byte for byte, verifies each new proof, and reports where responses differ.
import { readLimited } from '../common/limited.ts';
import { type Exchange, VerificationError, type Verified, type VerifyOptions, verifyAttestation } from '../index.ts';
import { MAX_INPUT_BYTES, UsageError } from './input.ts';
import { plain } from './report.ts';

interface Replay {
  readonly baseUrl: string;
  readonly times: number;
  readonly apiKey: string | null;
  readonly json: boolean;
  readonly options: VerifyOptions;
}

/** The outcome of one replay. `parts` names a position in the response, without its text. */
type Outcome =
  | { readonly outcome: 'identical' }
  | { readonly outcome: 'different'; readonly parts: string }
  | { readonly outcome: 'unproven'; readonly code: string; readonly incomplete: boolean }
  | { readonly outcome: 'failed'; readonly reason: string };

/** The greatest age of a new proof: it is made now, but clocks differ. */
const MAX_AGE_SECONDS = 300;

/** @param input an attestation, or a saved response or stream that carries one. @returns the exit status. @throws {UsageError} */
export async function replay(input: string | Uint8Array, { json, ...settings }: Replay): Promise<number> {
  const first = await verifyAttestation(input, settings.options).catch(refusal);
  if ('code' in first) {
    console.error(`countersign: the proof in FILE does not verify: ${first.code}`);
    return first.incomplete ? 3 : 1;
  }
  const seen = new Set([textOf(first)]);
  const outcomes: Outcome[] = [];
  for (let i = 1; i <= settings.times; i++) {
    const outcome = await replayOnce(first.exchange, seen, settings);
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

async function replayOnce(
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
      // A request for an attestation by header is not in the signed request.
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
  // The new proof is checked as of now, whatever `at` applied to the saved one.
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
 * Distinguishes proofs. An older response to the same request has the same challenge, and a new one within the same second may have the
 * same raw, but each device report has a new responder nonce.
 */
const textOf = ({ attestation }: Verified): string => JSON.stringify(attestation);

/** A base URL may end in /v1 or leave it out. */
function urlOf(baseUrl: string, endpoint: string): string {
  const base = baseUrl.replace(/\/+$/, '');
  return base.endsWith('/v1') ? base + endpoint.slice('/v1'.length) : base + endpoint;
}

/** Members that identify a response or describe how it was served: they differ between responses that are otherwise the same. */
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

/** The first position at which two responses differ: `choices[0].message.content, character 17`; null: they are the same. */
export function firstDifference(a: unknown, b: unknown, path = ''): string | null {
  if (typeof a === 'string' && typeof b === 'string') return a === b ? null : `${path}, character ${differsAt(a, b)}`;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return Object.is(a, b) ? null : path;
  if (Array.isArray(a) !== Array.isArray(b)) return path;
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => !OF_ONE_ANSWER.has(name));
  for (const name of names) {
    const at = Array.isArray(a) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`;
    const [one, other] = [a, b].map((value) => (value as Record<string, unknown>)[name]);
    const parts = firstDifference(one, other, at);
    if (parts !== null) return parts;
  }
  return null;
}

/** The number of the first character that differs, counted from 1. */
function differsAt(a: string, b: string): number {
  const [one, other] = [[...a], [...b]];
  const at = one.findIndex((character, i) => character !== other[i]);
  return (at < 0 ? one.length : at) + 1;
}

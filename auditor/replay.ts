// `countersign replay`: sends the signed request again, byte for byte, verifies each new proof, and reports where responses differ.
import { type Arguments, fileIn, type OwnCommand, url } from '../verify/cli/args.ts';
import { collateralFor, onFetch } from '../verify/cli/collateral-folder.ts';
import { MAX_INPUT_BYTES, readInput, readText, UsageError } from '../verify/cli/input.ts';
import { fileKindOf, refuseMisfit } from '../verify/cli/kinds.ts';
import { optionsOf } from '../verify/cli/options.ts';
import { plain } from '../verify/cli/report.ts';
import { BUNDLE, GPU, JSON_OUTPUT } from '../verify/cli/table.ts';
import { readLimited } from '../verify/common/limited.ts';
import {
  type Exchange,
  VerificationError,
  type Verified,
  type VerifyOptions,
  verifyAttestation,
} from '../verify/index.ts';
import { type Engine, openEngine } from './audit/engine.ts';
import { isTie, partingOf } from './parting.ts';

export const REPLAY: OwnCommand = {
  name: 'replay',
  operands: 'FILE',
  text: 'ask the signed request again, byte for byte, verify the new proof and compare the two responses',
  options: [
    { name: 'base-url', value: 'URL', text: 'the service to ask, such as http://127.0.0.1:8080/v1' },
    {
      name: 'engine',
      value: 'URL',
      text: 'your engine with the weights: how far apart two tokens are where responses to a request without logprobs part',
    },
    { name: 'times', value: 'N', text: 'how often; 1 without it, 100 at most' },
    { name: 'api-key-file', value: 'FILE', text: 'a file that holds the API key; OPENAI_API_KEY without it' },
    ...GPU,
    BUNDLE,
    JSON_OUTPUT,
  ],
  examples: ['countersign replay answer.json --base-url http://127.0.0.1:8080/v1 --times 5'],
  run: replay,
};

const MAX_TIMES = 100;
type Env = Parameters<OwnCommand['run']>[1];

interface Replay {
  readonly baseUrl: string;
  readonly times: number;
  readonly apiKey: string | null;
  readonly engine: Engine | null;
  readonly options: VerifyOptions;
}

/** The outcome of one replay. `parts` names a position in the response, without its text. */
type Outcome =
  | { readonly outcome: 'identical' }
  | { readonly outcome: 'tie'; readonly token: number; readonly apart: number }
  | {
      readonly outcome: 'different';
      readonly parts: string;
      readonly token: number | null;
      readonly apart: number | null;
    }
  | { readonly outcome: 'unproven'; readonly code: string; readonly incomplete: boolean }
  | { readonly outcome: 'failed'; readonly reason: string };

/** The greatest age of a new proof: it is made now, but clocks differ. */
const MAX_AGE_SECONDS = 300;

/** @throws {UsageError} */
async function settingsIn(args: Arguments, env: Env): Promise<Replay> {
  const {
    'base-url': baseUrl,
    times = '1',
    engine,
  } = args.values as Partial<Record<'base-url' | 'times' | 'engine', string>>;
  if (baseUrl === undefined) throw new UsageError('replay needs --base-url URL');
  if (!/^[1-9]\d{0,2}$/.test(times) || Number(times) > MAX_TIMES)
    throw new UsageError(`--times ${times}: not a number from 1 to ${MAX_TIMES}`);
  return {
    baseUrl: url('--base-url', baseUrl),
    times: Number(times),
    apiKey: apiKeyOf(args, env),
    engine: engine === undefined ? null : await openEngine('--engine', url('--engine', engine), null),
    options: { ...optionsOf(args, onFetch), collateral: collateralFor(args, onFetch) },
  };
}

/** @throws {UsageError} */
function apiKeyOf({ apiKeyFile }: Arguments, env: Env): string | null {
  return apiKeyFile === null ? (env.OPENAI_API_KEY ?? null) : readText(apiKeyFile).trim();
}

/** The file is an attestation, or a saved response or stream that carries one. */
async function replay(args: Arguments, env: Env): Promise<number> {
  const settings = await settingsIn(args, env);
  const input = readInput(fileIn(args.operands, REPLAY));
  refuseMisfit(args, fileKindOf(input));
  const { json } = args;
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
  const count = (name: Outcome['outcome']) => outcomes.filter(({ outcome }) => outcome === name).length;
  const [identical, ties] = [count('identical'), count('tie')];
  if (json) console.log(JSON.stringify({ endpoint: first.exchange.endpoint, identical, ties, outcomes }, null, 2));
  else
    console.log(`\n${identical} of ${outcomes.length} identical${ties === 0 ? '' : `, ${ties} identical up to a tie`}`);
  if (identical + ties === outcomes.length) return 0;
  const wrong = outcomes.some(
    (one) => one.outcome === 'different' || one.outcome === 'failed' || (one.outcome === 'unproven' && !one.incomplete),
  );
  return wrong ? 1 : 3;
}

function refusal(error: unknown): { code: string; incomplete: boolean } {
  if (!(error instanceof VerificationError)) throw error;
  return { code: error.code, incomplete: error.incomplete };
}

function inWords(outcome: Outcome): string {
  if (outcome.outcome === 'tie')
    return `proven, identical up to token ${outcome.token - 1}, then a tie (${outcome.apart.toFixed(3)} apart)`;
  if (outcome.outcome === 'different') {
    const { parts, token, apart } = outcome;
    const how = apart === null ? ' differs' : ` differs by ${apart.toFixed(1)} nats`;
    return `different: parts at ${parts}${token === null ? '' : `: token ${token}${how}`}`;
  }
  if (outcome.outcome === 'unproven') return `not proven: ${outcome.code}`;
  return outcome.outcome === 'failed' ? outcome.reason : 'proven, identical';
}

async function replayOnce(
  { endpoint, request, response }: Exchange,
  seen: Set<string>,
  { baseUrl, apiKey, engine, options }: Replay,
): Promise<Outcome> {
  const asked = JSON.parse(request) as { readonly [name: string]: unknown };
  const { tee, stream } = asked;
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
  const [one, other] = [JSON.parse(response), JSON.parse(again.exchange.response)];
  const parting = await partingOf(asked, one, other, engine);
  if (parting !== null && isTie(asked, parting))
    return { outcome: 'tie', token: parting.token, apart: parting.apart ?? 0 };
  const parts = firstDifference(one, other);
  if (parts === null && parting === null) return { outcome: 'identical' };
  const { token = null, apart = null } = parting ?? {};
  return { outcome: 'different', parts: parts ?? 'log-probabilities', token, apart };
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
  // What the model found likely: tokens are compared by themselves, these with tolerance.
  'logprobs',
  'prompt_logprobs',
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

// Reads a transcript, a line at a time: each proof is checked on one of the cores, and then its exchange is joined to those before it.
import { createHash } from 'node:crypto';
import { type RawParts, splitRaw } from '../../proto/attestation/raw.ts';
import { isObject, JsonTextError } from '../../proto/json.ts';
import { AHEAD, type Job, type Line, linesOf, type Pool, poolSize } from '../../verify/cli/many.ts';
import { LruMap } from '../../verify/common/lru.ts';
import type { Level } from '../../verify/index.ts';
import { Chain, type Link } from './chain.ts';
import { type Finding, finding } from './findings.ts';
import { type Conversation, conversationOf, type Item } from './items.ts';
import { type Redacted, readRedacted } from './redact.ts';

/** An exchange of a transcript. */
export interface Turn {
  /** Counted from 1. */
  readonly number: number;
  readonly line: number;
  readonly verdict: 'VALID' | 'INVALID' | 'INCOMPLETE';
  readonly level: Level;
  /** null: it is refused, or redacted. */
  readonly endpoint: string | null;
  readonly model: string | null;
  /** By the gateway's clock. */
  readonly time: string | null;
  /** null: it is no part of a run. */
  readonly run: number | null;
  readonly parent: number | null;
  readonly findings: readonly Finding[];
  /** What it told the model that was not told before. */
  readonly fresh: readonly Item[];
  /** What the model said, by choice. */
  readonly said: readonly (readonly Item[])[];
  /** What was read, for a copy: the line's value; null: the line is no exchange. */
  readonly value: Readonly<Record<string, unknown>> | null;
  readonly conversation: Conversation | null;
}

/** A line that is a bundle, for a copy. */
export interface BundleLine {
  readonly bundle: string;
}

export interface Transcript {
  turns(): AsyncGenerator<Turn | BundleLine, void, undefined>;
  readonly runs: number;
  /** Once all turns were read. */
  open(): Finding[];
}

/** Exchanges by whose hashes it is known that one comes again. */
const MAX_SEEN = 1_000_000;

interface Read {
  readonly redacted: Redacted | null;
  readonly job: Job;
  readonly value: Readonly<Record<string, unknown>> | null;
  readonly line: Promise<Line>;
}

/** @param file `-`: standard input. @param pool checks proofs. @throws {UsageError} where it cannot be read */
export function openTranscript(file: string, pool: Pick<Pool, 'check'>): Transcript {
  const chain = new Chain();
  const seen = new LruMap<string, number>(MAX_SEEN);
  let number = 0;

  async function* read(): AsyncGenerator<Read, void, undefined> {
    const most = poolSize() * AHEAD;
    const pending: Read[] = [];
    for await (const job of linesOf(file)) {
      const value = parsedLine(job);
      const redacted = readRedacted(value);
      const line = redacted === null && value !== null ? pool.check(job) : Promise.resolve(null);
      line.catch(() => {});
      pending.push({ job, value, line, redacted });
      if (pending.length >= most) yield pending.shift() as Read;
    }
    yield* pending;
  }

  async function turnOf({ job, value, line, redacted }: Read): Promise<Turn | BundleLine> {
    const checked = await line;
    if (checked === null && value !== null && redacted === null) return { bundle: textOf(job) };
    const turn = { ...NOTHING, number: ++number, line: Number(/\d+$/.exec(job.name)?.[0]), value };
    if (redacted !== null) return redactedTurn(turn, redacted);
    if (checked === null)
      return { ...turn, verdict: job.isCut ? 'INCOMPLETE' : 'INVALID', findings: [job.isCut ? CUT : NOT_JSON] };
    const { verdict, level, code } = checked;
    const parts = verdict === 'INVALID' ? null : partsOf(value);
    const proof = proofFindings(checked);
    if (parts === null)
      return {
        ...turn,
        verdict: 'INVALID',
        findings: [finding('proof_invalid', `its proof does not verify: ${code}`)],
      };
    const { endpoint = '/v1/chat/completions', request, response, timestamp } = parts.raw;
    const time = new Date(timestamp * 1000).toISOString();
    return {
      ...turn,
      verdict,
      level,
      endpoint,
      time,
      ...joined(turn.number, parts.hash, proof, () => conversationOf(endpoint, request, response)),
    };
  }

  /** @param hash raw's */
  function joined(
    turn: number,
    hash: string,
    proof: readonly Finding[],
    read: () => Conversation | null,
  ): Partial<Turn> {
    const first = seen.get(hash);
    if (first !== undefined) return { findings: [...proof, again(first)] };
    seen.set(hash, turn);
    try {
      const conversation = read();
      if (conversation === null)
        return { findings: [...proof, finding('no_conversation', 'its endpoint holds no conversation')] };
      const { findings, ...link }: Link = chain.add(turn, conversation);
      const { model, responses: said } = conversation;
      return { ...link, model, said, conversation, findings: [...proof, ...findings] };
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return { findings: [...proof, finding('not_comparable', 'its messages are nested too deeply to be compared')] };
    }
  }

  const again = (first: number): Finding =>
    first > 0
      ? finding('repeated', `it is the exchange of turn ${first} once more`)
      : finding('opened', `it opens turn ${-first}, which is redacted: raw has the hash that stands there`);

  async function redactedTurn(
    turn: Turn,
    { raw_sha256, conversation, endpoint, ...redacted }: Redacted,
  ): Promise<Turn> {
    const proof = (await redacted.matches())
      ? finding('redacted', 'raw is not in the file: the proof cannot be checked, and what its messages are is claimed')
      : finding('proof_invalid', "the proof is not for raw's hash");
    const link = joined(turn.number, raw_sha256, [proof], () => conversation);
    // The whole exchange may follow.
    if (seen.get(raw_sha256) === turn.number) seen.set(raw_sha256, -turn.number);
    return { ...turn, endpoint, verdict: proof.code === 'redacted' ? 'INCOMPLETE' : 'INVALID', ...link };
  }

  return {
    async *turns() {
      for await (const one of read()) yield await turnOf(one);
    },
    get runs() {
      return chain.runs;
    },
    open: () => chain.open(),
  };
}

const NOTHING = {
  verdict: 'INVALID',
  level: 'none',
  endpoint: null,
  model: null,
  time: null,
  run: null,
  parent: null,
  findings: [],
  fresh: [],
  said: [],
  conversation: null,
} as const satisfies Partial<Turn>;

const CUT = finding(
  'line_cut',
  'the last line breaks off: its writer stopped while it wrote, before the answer was handed over',
);
const NOT_JSON = finding('proof_invalid', 'the line is no exchange: it is not JSON');

const textOf = ({ line }: Job): string => new TextDecoder().decode(line ?? new Uint8Array());

function parsedLine(job: Job): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(textOf(job));
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

function proofFindings({ verdict, code }: NonNullable<Line>): Finding[] {
  if (verdict !== 'INCOMPLETE') return [];
  return [finding('proof_incomplete', `its proof cannot be checked to the end: ${code}; nothing was found wrong`)];
}

/** Of an attestation, or of an answer that carries one. */
function partsOf(value: Readonly<Record<string, unknown>> | null): { raw: RawParts; hash: string } | null {
  const { raw } = (isObject(value?.attestation) ? value.attestation : value) ?? {};
  if (typeof raw !== 'string') return null;
  try {
    return { raw: splitRaw(raw), hash: createHash('sha256').update(raw).digest('hex') };
  } catch (error) {
    if (error instanceof JsonTextError) return null;
    throw error;
  }
}

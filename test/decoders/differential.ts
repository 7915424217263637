// Gives each stream to each decoder, on each way to a client: what any of them reads is a prefix of what was hashed, or it throws.
import fc from 'fast-check';
import { EVENT_STREAM, EVIL, type Recipe, recipe, textOf } from './grammar.ts';
import {
  type Answer,
  asGiven,
  type Decoder,
  isPrefix,
  type Reading,
  readByStandard,
  streamHash,
  withoutProof,
} from './reading.ts';
import { type Sent, savedVerdict, sendRecipe, throughFetch } from './stream.ts';

/** What comes to a client on one way, and what is said to be proven of it. */
export interface Arrived {
  readonly answer: Answer;
  /** `stream.sha256` of the proof that was found to be right; null where none was. */
  readonly proven: string | null;
  /** Its end, where it has one, says that it is: anybody who reads it. */
  readonly endProves: boolean;
  /** What the server's own framing must not get through. */
  readonly framing: RegExp | null;
}

export interface Way {
  readonly name: string;
  /** Null where nothing comes to a client, or nobody says that it is proven. */
  carry(sent: Sent): Promise<Arrived | null>;
  /** At a time. */
  readonly concurrency: number;
}

const OWN_EVENTS = /^(?:(?:data: [^\r\n]*\n)+\n)*$/;

export const isEventStream = ({ type }: Answer): boolean => type.toLowerCase().startsWith(EVENT_STREAM);

export const fetchWay: Way = {
  name: 'through a verifying fetch',
  concurrency: 1,
  async carry(sent) {
    const { answer, verified } = await throughFetch(sent);
    const proven = verified === null ? null : (verified.exchange.stream?.sha256 ?? 'a whole answer');
    return {
      answer,
      proven,
      endProves: true,
      framing: isEventStream(answer) && answer.status < 400 ? OWN_EVENTS : null,
    };
  },
};

export const savedWay: Way = {
  name: 'from a saved stream that verifies',
  concurrency: 1,
  async carry(sent) {
    const verdict = await savedVerdict(sent);
    if ('refused' in verdict) return null;
    const answer = { ...sent.answer, status: 200, type: EVENT_STREAM, broken: null };
    return { answer, proven: verdict.signed, endProves: false, framing: null };
  },
};

export interface Finding {
  readonly decoder: string;
  readonly problem: string;
  /** With what it read. */
  readonly detail: string;
}

/** @returns what is wrong with one answer, by itself and as each decoder reads it. */
function judge({ answer, proven, endProves, framing }: Arrived, readings: ReadonlyMap<Decoder, Reading>): Finding[] {
  const bytes = Buffer.concat(answer.pieces);
  const { payloads, ended } = readByStandard(bytes);
  const findings: Finding[] = [];
  if (framing !== null && !framing.test(bytes.toString('latin1')))
    findings.push({ decoder: 'none', problem: "bytes of the server's framing come through", detail: '' });
  if (endProves && answer.broken === null && answer.status < 400 && proven === null)
    findings.push({ decoder: 'none', problem: `status ${answer.status} ends, and nothing was proven`, detail: '' });
  if (proven !== null && streamHash(withoutProof(payloads)) !== proven)
    findings.push({ decoder: 'the standard', problem: 'the proof is of another stream', detail: '' });
  for (const [decoder, { read, threw }] of readings) {
    const all = asGiven(decoder, payloads);
    const say = (problem: string, detail = '') =>
      void findings.push({ decoder: decoder.name, problem, detail: detail.slice(0, 500) });
    if (!isPrefix(read, all)) {
      const other = read.find((one, i) => one !== all[i]) ?? '';
      say(`it reads what was not hashed${other.includes(EVIL) ? ', and shows the forged words' : ''}`, other);
    }
    if (threw !== null) continue;
    if (proven === null) say('the answer ends for it as a whole one does, and nothing was proven');
    // By the standard a last event without its empty line is not read.
    else if (read.length < all.length - (ended ? 0 : 1)) say('the answer ends for it before all was read');
  }
  return findings;
}

async function inTurns<T, R>(items: readonly T[], concurrency: number, run: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  const work = async () => {
    for (let i = next++; i < items.length; i = next++) results[i] = await run(items[i] as T);
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  return results;
}

export interface Examined {
  readonly findings: readonly Finding[];
  /** Whether a proof was right, and which decoders read the answer to its end. */
  readonly proven: boolean;
  readonly whole: readonly string[];
}

export async function examine(decoders: readonly Decoder[], way: Way, sent: readonly Sent[]): Promise<Examined[]> {
  const arrived = await inTurns(sent, way.concurrency, (one) => way.carry(one));
  const given = arrived.filter((one) => one !== null);
  const read = await Promise.all(decoders.map((decoder) => decoder.read(given.map(({ answer }) => answer))));
  let next = 0;
  return arrived.map((one) => {
    if (one === null) return { findings: [], proven: false, whole: [] };
    const i = next++;
    const readings = new Map(decoders.map((decoder, d) => [decoder, read[d]?.[i] as Reading]));
    const whole = decoders.filter((decoder) => readings.get(decoder)?.threw === null).map(({ name }) => name);
    return { findings: judge(one, readings), proven: one.proven !== null, whole };
  });
}

export interface Run {
  readonly streams: number;
  readonly seed: number;
}

export interface Outcome {
  readonly proven: number;
  /** Streams that a decoder read to their end, by its name. */
  readonly whole: ReadonlyMap<string, number>;
  /** One for each decoder and problem, with its seed and the smallest stream found; empty where all is well. */
  readonly report: readonly string[];
}

const BATCH_STREAMS = 100;
const SHRINK_MS = 15_000;
/** Shrinking takes time, and the first of them say enough. */
const MAX_REPORTED = 12;

/** {@link Run.streams} random streams on one way to all decoders. */
export async function differential(decoders: readonly Decoder[], way: Way, { streams, seed }: Run): Promise<Outcome> {
  const recipes = fc.sample(recipe, { numRuns: streams, seed });
  const whole = new Map(decoders.map(({ name }) => [name, 0]));
  const found = new Map<string, { readonly index: number; count: number }>();
  let proven = 0;
  for (let start = 0; start < recipes.length; start += BATCH_STREAMS) {
    const examined = await examine(
      decoders,
      way,
      await inTurns(recipes.slice(start, start + BATCH_STREAMS), 1, sendRecipe),
    );
    for (const [i, one] of examined.entries()) {
      if (one.proven) proven++;
      for (const name of one.whole) whole.set(name, (whole.get(name) ?? 0) + 1);
      for (const { decoder, problem } of one.findings) {
        const kind = `${decoder}: ${problem}`;
        const known = found.get(kind);
        if (known === undefined) found.set(kind, { index: start + i, count: 1 });
        else known.count++;
      }
    }
  }
  const report: string[] = [];
  for (const [kind, { index, count }] of [...found].slice(0, MAX_REPORTED))
    report.push(`${count} of ${streams} streams ${way.name}\n${await smallest(decoders, way, kind, { seed, index })}`);
  return { proven, whole, report };
}

/** The stream at `index` of the run, made smaller as long as the same is wrong with it. */
async function smallest(
  decoders: readonly Decoder[],
  way: Way,
  kind: string,
  { seed, index }: { readonly seed: number; readonly index: number },
): Promise<string> {
  const wrong = async (one: Recipe) => {
    const [examined] = await examine(decoders, way, [await sendRecipe(one)]);
    return examined?.findings.find(({ decoder, problem }) => `${decoder}: ${problem}` === kind);
  };
  const property = fc.asyncProperty(recipe, async (one) => (await wrong(one)) === undefined);
  const { counterexample } = await fc.check(property, {
    seed,
    path: String(index),
    numRuns: 1,
    interruptAfterTimeLimit: SHRINK_MS,
  });
  const [one] = counterexample ?? [];
  if (one === undefined) return `${kind}: seed ${seed}, stream ${index}; it did not come again`;
  return `${kind} (seed ${seed}, stream ${index})\n${shown(one)}\n${(await wrong(one))?.detail ?? ''}`;
}

function shown(one: Recipe): string {
  const { signed, status, type, cuts, broken } = one;
  return `${JSON.stringify({ signed, status, type, cuts, broken })}\n${JSON.stringify(textOf(one))}`;
}

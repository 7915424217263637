// Random streams with 0 to 4 mutations, each made again from its seed, and made smaller where it shows what was not signed.
import { type Random, seeded } from '../verify/fuzz/fuzz-random.ts';
import { CLIENTS } from './clients.ts';
import { differences, isHidden } from './faults.ts';
import { honestStream } from './grammar.ts';
import { MUTATIONS } from './mutations.ts';
import { ENDPOINTS, type Endpoint, type Json, payloadOf, type Stream, signedOf } from './stream.ts';

const MOST_MUTATIONS = 4;

export interface Recipe {
  readonly seed: number;
  readonly endpoint: Endpoint;
  /** Each with a seed of its own, so that one can be left out. */
  readonly mutations: readonly { readonly name: string; readonly seed: number }[];
}

export function recipeOf(seed: number): Recipe {
  const r = seeded(seed);
  const endpoint = r.pick(ENDPOINTS);
  const fitting = MUTATIONS.filter(({ of }) => of === undefined || of.includes(endpoint));
  const own = fitting.filter(({ of }) => of !== undefined);
  const named = (random: Random) => random.pick(random.chance(0.5) && own.length > 0 ? own : fitting).name;
  const mutations = Array.from({ length: r.below(MOST_MUTATIONS + 1) }, () => ({
    name: named(r),
    seed: r.below(2 ** 31),
  }));
  return { seed, endpoint, mutations };
}

export function streamOf({ seed, endpoint, mutations }: Recipe): Stream {
  const honest = honestStream(seeded(seed + 1), endpoint);
  const events = [...honest.events];
  for (const mutation of mutations) mutate(events, mutation.name, seeded(mutation.seed));
  // What is sent is JSON: without members that are undefined.
  return { ...honest, events: JSON.parse(JSON.stringify(events)) };
}

function mutate(events: Json[], name: string, r: Random): void {
  try {
    MUTATIONS.find((mutation) => mutation.name === name)?.apply(events, r);
  } catch (error) {
    // It does not fit what another mutation made of the events.
    if (!(error instanceof TypeError)) throw error;
  }
}

/** What the SDKs show of a stream that the rules accept other than is signed; null: they refuse it. */
export async function examine(stream: Stream, mayThrow = true): Promise<string[] | null> {
  if ('refused' in signedOf(stream)) return null;
  const found: string[] = [];
  for (const client of CLIENTS.filter(({ endpoint }) => endpoint === stream.endpoint)) {
    try {
      found.push(...differences(client, stream, await client.show(stream)));
    } catch (error) {
      if (!mayThrow && !isHidden(client, stream)) found.push(`${client.name} throws ${error}`);
    }
  }
  return found;
}

/** Which clients show what otherwise, whatever it is. */
const kindsOf = (differences: readonly string[] | null): string =>
  [...new Set(differences?.map((text) => text.replace(/ shows ([\w. ]*\w) .*/s, ' $1')))].join();

const linesOf = ({ events, choices }: Stream): string[] => [
  `${choices} choices are asked for`,
  ...events.map((event) => `  ${payloadOf(event)}`),
];

const titleOf = ({ seed, endpoint, mutations }: Recipe): string =>
  `seed ${seed}, ${endpoint}: ${mutations.map(({ name }) => name).join(', ') || 'no mutation'}`;

/** The same finding with fewer mutations and fewer events. */
export async function report(recipe: Recipe): Promise<string> {
  const first = streamOf(recipe);
  const refusal = signedOf(first);
  if ('refused' in refusal) return [`${titleOf(recipe)}: ${refusal.refused}`, ...linesOf(first)].join('\n');
  const found = kindsOf(await examine(first));
  const same = async (other: Stream) => kindsOf(await examine(other)) === found;
  let { mutations } = recipe;
  for (let i = mutations.length - 1; i >= 0; i--) {
    const fewer = mutations.filter((_, at) => at !== i);
    if (await same(streamOf({ ...recipe, mutations: fewer }))) mutations = fewer;
  }
  let stream = streamOf({ ...recipe, mutations });
  for (let i = stream.events.length - 1; i >= 0; i--) {
    const smaller = { ...stream, events: stream.events.filter((_, at) => at !== i) };
    if (await same(smaller)) stream = smaller;
  }
  const signed = signedOf(stream);
  return [
    titleOf({ ...recipe, mutations }),
    ...((await examine(stream)) ?? []),
    `signed: ${JSON.stringify('response' in signed ? signed.response : null)}`,
    ...linesOf(stream),
  ].join('\n');
}

// One change in a question that has a right answer: in its JSON, or in one of its texts, by what that text is.
import { createHash } from 'node:crypto';
import { mutateBytes, mutateText } from '../verify/fuzz/fuzz-bytes.ts';
import { mutateDer } from '../verify/fuzz/fuzz-der.ts';
import { mutateJson } from '../verify/fuzz/fuzz-json.ts';
import { type Random, seeded, seedOf } from '../verify/fuzz/fuzz-random.ts';
import { mutateToken, mutateTranscript } from '../verify/fuzz/fuzz-targets-text.ts';
import { mutateXml } from '../verify/fuzz/fuzz-xml.ts';
import type { Input, Options, Question } from './package.ts';

/** `count` of them, of `questions` in turn; the same for the same seed. */
export function mutated(questions: readonly Question[], count: number, seed: number): Question[] {
  return Array.from({ length: count }, (_, i) => {
    const question = questions[i % questions.length] as Question;
    const random = seeded(seedOf(seed, i));
    const name = `${question.name}, changed by seed ${seed}, ${i}`;
    const { collateral, bundles = {} } = question.options as Options;
    if (random.chance(0.03))
      return { ...question, name, options: { ...question.options, at: anyTime(random) } } as Question;
    if (question.call !== 'cpu' && collateral !== undefined && random.chance(0.4)) {
      const { ocsp = [], ...rest } = mutateLeaf(collateral, random);
      // Some of it may be no base64 any more.
      const changed = { ...rest, ocsp: ocsp.map((one) => base64(Buffer.from(one, 'base64'))) };
      return { ...question, name, options: { ...question.options, collateral: changed } };
    }
    if (Object.keys(bundles).length > 0 && random.chance(0.5)) return mutateBundle(question, name, random);
    return { ...question, name, input: mutateInput(question.input, random) } as Question;
  });
}

const anyTime = (random: Random): string => new Date(Date.UTC(2019 + random.below(20), random.below(12))).toISOString();

function mutateInput(input: Input, random: Random): Input {
  if ('bytes' in input)
    return { bytes: base64(mutateTranscript(Uint8Array.from(Buffer.from(input.bytes, 'base64')), random)) };
  const text = 'text' in input ? input.text : JSON.stringify(input.value);
  if (random.chance(0.3)) return { text: mutateJson(text, random) };
  if (random.chance(0.1)) return { text: mutateText(text, random) };
  const value = mutateLeaf(JSON.parse(text) as object, random);
  return 'value' in input ? { value } : { text: JSON.stringify(value) };
}

/** Its bundle is another text: under the hash that is named, or under its own, which is then named. */
function mutateBundle(question: Question, name: string, random: Random): Question {
  const options = question.options as Options;
  const [[named, text] = ['', '']] = Object.entries(options.bundles ?? {});
  const changed = (mutateInput({ text }, random) as { text: string }).text;
  const other = random.chance(0.1) ? named : createHash('sha256').update(changed).digest('hex');
  const given = JSON.stringify(question.input).replaceAll(named, other);
  return {
    ...question,
    name,
    input: JSON.parse(given),
    options: { ...options, bundles: { [other]: changed } },
  } as Question;
}

interface Leaf {
  readonly holder: Record<string, unknown>;
  readonly name: string;
}

function leaves(value: unknown, found: Leaf[] = []): Leaf[] {
  if (typeof value !== 'object' || value === null) return found;
  for (const [name, inner] of Object.entries(value)) {
    if (typeof inner === 'string' && inner !== '') found.push({ holder: value as Record<string, unknown>, name });
    else leaves(inner, found);
  }
  return found;
}

/** A copy, with one of its texts changed. */
function mutateLeaf<T extends object>(value: T, random: Random): T {
  const copy = structuredClone(value);
  const all = leaves(copy);
  if (all.length === 0) return copy;
  const { holder, name } = random.pick(all);
  holder[name] = mutateString(holder[name] as string, random);
  return copy;
}

const base64 = (one: Uint8Array) => Buffer.from(one).toString('base64');
const PEM = /-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g;

function mutateString(text: string, random: Random): string {
  if (random.chance(0.05)) return mutateText(text, random);
  if (text.includes('-----BEGIN')) return mutatePem(text, random);
  if (/^(?:[0-9a-f]{2}){8,}$/.test(text))
    return Buffer.from(mutateBinary(Buffer.from(text, 'hex'), random)).toString('hex');
  if (/^[A-Za-z0-9+/]{24,}={0,2}$/.test(text) && text.length % 4 === 0)
    return base64(mutateBinary(Buffer.from(text, 'base64'), random));
  if (/^[[{]/.test(text)) return mutateToken(text, random);
  return text.startsWith('<') || text.startsWith('\ufeff<') ? mutateXml(text, random) : mutateText(text, random);
}

function mutateBinary(given: Buffer, random: Random): Uint8Array {
  const all = Uint8Array.from(given);
  const text = given.toString('latin1');
  if (text.startsWith('-----BEGIN')) return Buffer.from(mutatePem(text, random), 'latin1');
  if (/^[[{]/.test(text)) return Buffer.from(mutateJson(given.toString(), random));
  return all[0] === 0x30 && random.chance(0.7) ? mutateDer(all, random) : mutateBytes(all, random);
}

function mutatePem(text: string, random: Random): string {
  const blocks = [...text.matchAll(PEM)].map(([, inner = '']) => inner);
  if (blocks.length === 0 || random.chance(0.1)) return mutateText(text, random);
  const block = random.pick(blocks);
  const der = Uint8Array.from(Buffer.from(block, 'base64'));
  const changed = random.chance(0.6) ? mutateDer(der, random) : mutateBytes(der, random);
  return text.replace(block, () => `\n${base64(changed)}\n`);
}

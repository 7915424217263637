// Every token the model has: specials, all bytes, words by their part in a sentence, pieces of unknown words.
import type { Role, Slot } from './grammar.ts';
import * as words from './words.ts';

export interface Token {
  readonly id: number;
  /** What it adds to the text; nothing for a special token. */
  readonly bytes: Uint8Array;
  readonly text: string;
  /** The part it plays once read. */
  readonly role: Role | null;
  /** The parts it may be said as; null for what the model only hears. */
  readonly slot: Slot | null;
}

export interface Vocabulary {
  readonly tokens: readonly Token[];
  readonly by_text: ReadonlyMap<string, number>;
  readonly begin: number;
  readonly end: number;
  /** The end of one message of a chat. */
  readonly end_of_turn: number;
  readonly speakers: ReadonlyMap<string, number>;
  /** The token of byte 0; byte n is n further. */
  readonly first_byte: number;
}

const SPEAKERS = ['system', 'user', 'assistant', 'tool'];

export function createVocabulary(): Vocabulary {
  const tokens: Token[] = [];
  const by_text = new Map<string, number>();
  const encoder = new TextEncoder();

  const special = (text: string, role: Role | null = null, slot: Slot | null = null): number =>
    tokens.push({ id: tokens.length, bytes: new Uint8Array(), text, role, slot }) - 1;
  const word = (text: string, role: Role, slot: Slot | null): void => {
    if (by_text.has(text)) return;
    by_text.set(text, tokens.length);
    tokens.push({ id: tokens.length, bytes: encoder.encode(text), text, role, slot });
  };

  const begin = special('<|begin|>', 'start');
  const end = special('<|end|>', null, 'end');
  const end_of_turn = special('<|end_of_turn|>');
  const speakers = new Map(
    SPEAKERS.map((name) => [name, special(`<|${name}|>`, name === 'assistant' ? 'start' : null)]),
  );

  const first_byte = tokens.length;
  for (let byte = 0; byte < 256; byte++) {
    // Alone, a byte above 127 is no text; the tokenizer falls back to it by number, never by name.
    const text = byte < 128 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`;
    if (byte < 128 && !words.COMMAS.includes(text) && !words.STOPS.includes(text)) by_text.set(text, tokens.length);
    tokens.push({ id: tokens.length, bytes: Uint8Array.of(byte), text, role: 'noun', slot: null });
  }

  for (const text of words.COMMAS) word(text, 'comma', 'comma');
  for (const text of words.STOPS) word(text, 'stop', 'stop');
  const spoken: readonly (readonly [readonly string[], Role & Slot])[] = [
    [words.DETERMINERS, 'determiner'],
    [words.ADJECTIVES, 'adjective'],
    [words.NOUNS, 'noun'],
    [words.VERBS, 'verb'],
    [words.ADVERBS, 'adverb'],
    [words.PREPOSITIONS, 'preposition'],
    [words.CONJUNCTIONS, 'conjunction'],
    [words.PRONOUNS, 'pronoun'],
  ];
  for (const [list, role] of spoken) for (const text of list) word(` ${text}`, role, role);
  const openers: readonly (readonly [readonly string[], Role])[] = [
    [words.DETERMINERS.map(capitalised), 'determiner'],
    [words.PRONOUNS.map(capitalised), 'pronoun'],
    [words.OPENERS, 'opener'],
  ];
  for (const [list, role] of openers) {
    for (const text of list) {
      word(text, role, 'first');
      word(` ${text}`, role, 'later');
    }
  }
  for (const text of words.HEARD) for (const form of [` ${text}`, capitalised(text)]) word(form, 'noun', null);
  for (const text of words.PIECES) for (const form of [text, ` ${text}`]) word(form, 'noun', null);
  return { tokens, by_text, begin, end, end_of_turn, speakers, first_byte };
}

function capitalised(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

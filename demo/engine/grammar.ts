// The rough grammar that is built into the weights: which part of a sentence tends to follow which.

/** What the model takes a token for when it has read it. Each has a dimension of the residual stream. */
export const ROLES = [
  'start',
  'determiner',
  'adjective',
  'noun',
  'verb',
  'adverb',
  'opener',
  'preposition',
  'conjunction',
  'pronoun',
  'comma',
  'stop',
] as const;
export type Role = (typeof ROLES)[number];

/** What the model may say next. `first` is the capitalised word that opens an answer, `later` one that opens a further sentence. */
export type Slot = Exclude<Role, 'start' | 'opener'> | 'first' | 'later' | 'end';

/** Rough probabilities; what is not listed does not follow. */
export const FOLLOWS: Readonly<Record<Role, Readonly<Partial<Record<Slot, number>>>>> = {
  start: { first: 1 },
  determiner: { adjective: 0.35, noun: 0.65 },
  adjective: { noun: 0.92, adjective: 0.08 },
  noun: { verb: 0.42, preposition: 0.2, conjunction: 0.08, comma: 0.12, adverb: 0.02, stop: 0.12 },
  verb: { determiner: 0.8, preposition: 0.08, adverb: 0.04, stop: 0.02, noun: 0.06 },
  adverb: { preposition: 0.3, verb: 0.1, determiner: 0.3, stop: 0.3 },
  opener: { determiner: 0.7, pronoun: 0.3 },
  preposition: { determiner: 0.93, noun: 0.07 },
  conjunction: { determiner: 0.6, pronoun: 0.4 },
  pronoun: { verb: 0.97, adverb: 0.03 },
  comma: { conjunction: 0.6, determiner: 0.25, preposition: 0.15 },
  stop: { later: 0.15, end: 0.85 },
};

/** How much a role that was read a few words ago makes a slot likelier (logits): one verb a clause, no sentence of two words. */
export const RECENTLY: readonly { readonly role: Role; readonly slot: Slot; readonly logits: number }[] = [
  { role: 'verb', slot: 'verb', logits: -24 },
  { role: 'verb', slot: 'stop', logits: 18 },
  { role: 'stop', slot: 'stop', logits: -14 },
  { role: 'start', slot: 'stop', logits: -14 },
  { role: 'opener', slot: 'stop', logits: -8 },
  { role: 'comma', slot: 'comma', logits: -12 },
  { role: 'conjunction', slot: 'conjunction', logits: -12 },
  { role: 'conjunction', slot: 'verb', logits: 6 },
  { role: 'preposition', slot: 'preposition', logits: -8 },
];

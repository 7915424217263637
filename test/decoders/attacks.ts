// Attacks on what clients read, by name: each of them showed a client words that nobody signed, or an end that nobody proved.
import {
  ABORTS,
  BOM,
  BREAKS,
  choiceOf,
  chunkOf,
  EVENT_STREAM,
  EVIL,
  EVIL_DELTA,
  EVIL_FINISH,
  GENUINE,
  type Manner,
} from './grammar.ts';
import { type Sent, send } from './stream.ts';

export interface Attack {
  readonly name: string;
  readonly text: string;
  readonly manner?: Partial<Manner>;
}

const events = (...all: readonly string[]): string => all.map((event) => `${event}\n\n`).join('');
const [first = '', ...rest] = GENUINE;
const genuine = events(...GENUINE);
/** Words of which nobody has a proof, with these events at their end. */
const invented = (...end: readonly string[]): string => events(`data: ${EVIL_DELTA}`, ...end);
const evilWith = (members: string): string => `data: ${chunkOf(choiceOf('{}', '"stop"'), members)}`;
const codePoint = (text: string): string =>
  `U+${(text.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;

const byteOrderMarks: readonly Attack[] = [
  {
    name: 'words behind a byte order mark, put into a genuine stream',
    text: events(first, `${BOM}data: ${EVIL_DELTA}`, ...rest),
  },
  {
    name: 'words behind two byte order marks, at the start of a genuine stream',
    text: events(`${BOM}${BOM}data: ${EVIL_DELTA}`, ...GENUINE),
  },
  {
    name: "words behind a byte order mark's bytes read as Latin-1, at the start of a genuine stream",
    text: events(`\u00ef\u00bb\u00bfdata: ${EVIL_DELTA}`, ...GENUINE),
  },
  {
    name: 'an invented answer whose end stands behind a byte order mark',
    text: invented(`${BOM}data: ${EVIL_FINISH}`, `${BOM}data: [DONE]`),
  },
  { name: 'a byte order mark before the first word of a genuine stream', text: `${BOM}${genuine}` },
  { name: 'a byte order mark before the end of a genuine stream', text: genuine.replace('data: [DONE]', `${BOM}$&`) },
];

const falseErrors: readonly Attack[] = ['0.0', '-0', '0e0', '0', 'false', '""', 'null'].flatMap((error) => [
  {
    name: `an invented answer that ends with "error":${error}`,
    text: invented(`data: {"error":${error},"choices":[]}`),
  },
  {
    name: `an invented answer with "error":${error} in its words`,
    text: events(`data: ${chunkOf(choiceOf(`{"content":"${EVIL}"}`, 'null'), `,"error":${error}`)}`, 'data: [DONE]'),
  },
]);

const aborts: readonly Attack[] = ABORTS.flatMap((name) => [
  {
    name: `an invented answer whose attestation has ${name} twice`,
    text: invented(evilWith(`,"attestation":{"${name}":1,"${name}":2}`)),
  },
  {
    name: `an invented answer whose attestation has ${name} twice in a member`,
    text: invented(evilWith(`,"attestation":{"x":{"${name}":1,"${name}":2}}`)),
  },
  {
    name: `an invented answer with an error called ${name}`,
    text: invented(`data: {"error":{"message":"${name}","name":"${name}"}}`),
  },
  { name: `an invented answer, then ${name} in place of JSON`, text: invented(`data: ${name}`) },
  { name: `an invented answer, then a field called ${name}`, text: invented(`${name}: ${name}`) },
]);

const responses: readonly Attack[] = [204, 205].map((status) => ({
  name: `an answer of status ${status}`,
  text: genuine,
  manner: { status },
}));

const comments: readonly Attack[] = [...BREAKS, '\r'].map((mark) => ({
  name: `words in a comment behind ${codePoint(mark)}, put into a genuine stream`,
  text: events(first, `: x${mark}data: ${EVIL_DELTA}${mark}${mark}`, ...rest),
  manner: { signed: mark === '\r' ? 'as read' : 'genuine' },
}));

const others: readonly Attack[] = [
  {
    name: 'a genuine stream in Latin-1, by its type',
    text: genuine,
    manner: { type: `${EVENT_STREAM}; charset=iso-8859-1` },
  },
  {
    name: 'signed words that are others in UTF-7, by its type',
    text: genuine.replace('Hel', '+AEI-el'),
    manner: { type: `${EVENT_STREAM}; charset=utf-7`, signed: 'as read' },
  },
  ...['thread.x', 'error', 'ping'].map((name) => ({
    name: `a genuine stream with an event called ${name}`,
    text: events(first, ...rest.map((event, i) => (i === 0 ? `event: ${name}\n${event}` : event))),
  })),
  { name: 'words behind [DONE]', text: `${genuine}${invented()}`, manner: { signed: 'as read' } },
  {
    name: '[DONE] before the words that were signed',
    text: events(first, 'data: [DONE]', ...rest),
    manner: { signed: 'as read' },
  },
  {
    name: '[DONE] with more behind it, before the words that were signed',
    text: events(first, 'data: [DONE]\ndata:', ...rest),
    manner: { signed: 'as read' },
  },
  {
    name: 'an invented answer in which choices is an object',
    text: invented(`data: {"choices":{"0":${choiceOf('{}', '"stop"')}}}`),
  },
  { name: 'an invented answer with [DONE] and no proof', text: invented('data: [DONE]') },
  { name: 'an invented answer that just ends', text: invented() },
  { name: 'a signed stream that begins with null', text: `data: null\n\n${genuine}`, manner: { signed: 'as read' } },
  { name: 'nothing at all', text: '' },
  ...ABORTS.map((broken) => ({
    name: `an invented answer whose connection breaks with ${broken}`,
    text: invented(),
    manner: { broken },
  })),
];

export const attacks: readonly Attack[] = [
  ...byteOrderMarks,
  ...falseErrors,
  ...aborts,
  ...responses,
  ...comments,
  ...others,
];

export const sendAttack = ({ text, manner }: Attack): Promise<Sent> =>
  send(text, { signed: 'genuine', status: 200, type: EVENT_STREAM, cuts: [300, 301, 700], broken: null, ...manner });

import { expect, test } from 'vitest';
import { createDecoder, decode, encode } from '../../demo/engine/tokenizer.ts';
import { createVocabulary } from '../../demo/engine/vocabulary.ts';

const vocabulary = createVocabulary();

test('any text comes back from its tokens', () => {
  const texts = [
    '',
    'Hello, world.',
    ' The quiet river',
    '  two  spaces\n\ttab',
    'naïve façade 日本語 🜁🏳️‍🌈',
    '<|end|>',
    'a'.repeat(100),
    '\u0000\u007f\ufeffx',
  ];
  for (const text of texts) expect(decode(vocabulary, encode(vocabulary, text))).toBe(text);
});

test('a known word is one token, an unknown one is few, and text cannot forge a special token', () => {
  expect([...encode(vocabulary, ' river')]).toHaveLength(1);
  expect([...encode(vocabulary, ' attestation')].length).toBeLessThan(6);
  expect([...encode(vocabulary, '<|assistant|>')]).not.toContain(vocabulary.speakers.get('assistant'));
});

test('a character made of several tokens appears once it is complete', () => {
  const decoder = createDecoder(vocabulary);
  const parts = [...encode(vocabulary, '€')].map((token) => decoder.push(token));
  expect(parts).toEqual(['', '', '€']);
});

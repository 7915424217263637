// Text to tokens and back, without loss: whole words where the model knows them, pieces, then bytes.
import type { Vocabulary } from './vocabulary.ts';

/** A run of letters with the space before it, or any one character. */
const CHUNK = / ?[\p{L}\p{M}]+|./gsu;
const LONGEST_PIECE = 8;

const encoder = new TextEncoder();

/** Lazy: the caller decides how much work is done at once. */
export function* encode(vocabulary: Vocabulary, text: string): Generator<number> {
  for (const [chunk] of text.matchAll(CHUNK)) {
    const whole = vocabulary.by_text.get(chunk);
    if (whole !== undefined) yield whole;
    else yield* pieces(vocabulary, chunk);
  }
}

function* pieces(vocabulary: Vocabulary, chunk: string): Generator<number> {
  for (let at = 0; at < chunk.length; ) {
    let length = Math.min(LONGEST_PIECE, chunk.length - at);
    let piece: number | undefined;
    for (; length > 0; length--) {
      piece = vocabulary.by_text.get(chunk.slice(at, at + length));
      if (piece !== undefined) break;
    }
    if (piece !== undefined) {
      yield piece;
      at += length;
    } else {
      const char = String.fromCodePoint(chunk.codePointAt(at) ?? 0xfffd);
      for (const byte of encoder.encode(char)) yield vocabulary.first_byte + byte;
      at += char.length;
    }
  }
}

export interface Decoder {
  /** The text that this token completes. A character whose bytes are still coming is held. */
  push(token: number): string;
  /** What was held, as replacement characters. */
  end(): string;
}

export function createDecoder(vocabulary: Vocabulary): Decoder {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return {
    push: (token) => decoder.decode(vocabulary.tokens[token]?.bytes, { stream: true }),
    end: () => decoder.decode(),
  };
}

export function decode(vocabulary: Vocabulary, tokens: Iterable<number>): string {
  const decoder = createDecoder(vocabulary);
  let text = '';
  for (const token of tokens) text += decoder.push(token);
  return text + decoder.end();
}

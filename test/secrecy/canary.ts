// Words that must be found nowhere: made anew for each run, and looked for in every form that a careless line could print.
import { randomBytes } from 'node:crypto';

export interface Canary {
  readonly name: string;
  readonly text: string;
  /** The text, its beginning (an engine quotes ten characters of what it could not parse), and its encodings. */
  readonly forms: readonly string[];
}

export function newCanary(name: string): Canary {
  // Unlike any other word from its first letter on, and free of what JSON or a URL would escape.
  const text = `q${randomBytes(5).toString('hex')}${name}${randomBytes(8).toString('hex')}q`;
  const bytes = Buffer.from(text);
  const base64 = [0, 1, 2].map((pad) =>
    Buffer.concat([Buffer.alloc(pad), bytes])
      .toString('base64')
      .slice(4, -4),
  );
  return { name, text, forms: [text, text.slice(0, 9), bytes.toString('hex'), ...base64] };
}

/** The names of those that a text holds. */
export function found(haystack: string | Buffer, canaries: readonly Canary[]): string[] {
  const text = typeof haystack === 'string' ? haystack : haystack.toString('latin1');
  return canaries.filter(({ forms }) => forms.some((form) => text.includes(form))).map(({ name }) => name);
}

// Holds back text that may turn out to be a stop text, and cuts before the first one.
import type { Piece } from './generate.ts';
import type { Pick } from './sampler.ts';

export interface Stopper {
  /** The stop text that was found. */
  readonly stop: string | null;
  /** What may go out now. */
  push(text: string, pick: Pick): Piece | null;
  /** What was held. */
  end(text: string): Piece | null;
}

export function createStopper(stops: readonly string[]): Stopper {
  let held = '';
  let tokens: { pick: Pick; start: number }[] = [];
  let stop: string | null = null;

  /** Lets go the first `length` characters, and the tokens that began in them. */
  const release = (length: number): Piece | null => {
    // A token without text of its own yet goes out with the text it becomes part of.
    if (length === 0) return null;
    const text = held.slice(0, length);
    const out = tokens.filter(({ start }) => start < length || length === held.length);
    tokens = tokens.slice(out.length).map(({ pick, start }) => ({ pick, start: start - length }));
    held = held.slice(length);
    return { text, tokens: out.map(({ pick }) => pick) };
  };
  const isBefore = (found: string | null, other: string): boolean =>
    found !== null && held.indexOf(found) <= held.indexOf(other);
  const check = (final: boolean): Piece | null => {
    for (const one of stops) if (held.includes(one) && !isBefore(stop, one)) stop = one;
    if (stop !== null) return release(held.indexOf(stop));
    return release(final ? held.length : held.length - Math.max(0, ...stops.map((one) => begun(held, one))));
  };
  return {
    get stop() {
      return stop;
    },
    push(text, pick) {
      tokens.push({ pick, start: held.length });
      held += text;
      return check(false);
    },
    end(text) {
      held += text;
      return check(true);
    },
  };
}

/** How many characters at the end of `text` are the beginning of `stop`. */
function begun(text: string, stop: string): number {
  for (let length = Math.min(text.length, stop.length - 1); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length;
  }
  return 0;
}

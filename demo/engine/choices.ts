// All choices of one request, taking turns, so that a stream of several grows side by side.
import { type Ending, generate, type Piece, type ReadPrompt } from './generate.ts';
import type { Model } from './model.ts';
import type { Sampling } from './request.ts';

export interface Choice {
  readonly index: number;
  readonly prompt: ReadPrompt;
}

export type ChoiceEvent =
  | { readonly type: 'piece'; readonly index: number; readonly piece: Piece }
  | { readonly type: 'ending'; readonly index: number; readonly ending: Ending };

/** The tokens that an event brings: those of its piece, or those that went out with none. */
export const idsOf = (event: ChoiceEvent): readonly number[] =>
  event.type === 'piece' ? event.piece.tokens.map(({ token }) => token) : event.ending.rest;

export async function* takeTurns(
  model: Model,
  choices: readonly Choice[],
  sampling: Sampling,
  signal: AbortSignal,
): AsyncGenerator<ChoiceEvent> {
  let running = choices.map(({ index, prompt }) => ({
    index,
    pieces: generate(model, prompt, sampling, index, signal),
  }));
  while (running.length > 0) {
    const ended = new Set<number>();
    for (const { index, pieces } of running) {
      const next = await pieces.next();
      if (next.done) {
        ended.add(index);
        yield { type: 'ending', index, ending: next.value };
      } else {
        yield { type: 'piece', index, piece: next.value };
      }
    }
    running = running.filter(({ index }) => !ended.has(index));
  }
}

// What a request needs of the engine: the model, and a clock, names and chance that a test can decide.
import { randomBytes } from 'node:crypto';
import type { Llama } from './llama.ts';
import { createModel, type Model } from './model.ts';

export interface Engine {
  readonly model: Model;
  /** Answers in the place of `model`: null for the demo model. */
  readonly llama: Llama | null;
  readonly model_id: string;
  readonly started_ms: number;
  readonly now_ms: () => number;
  readonly new_id: () => string;
  /** The seed of a request that brings none. */
  readonly random_seed: () => number;
}

export const MODEL_ID = 'countersign-demo';
/** What `npm start -- --model` brings. */
export const LLAMA_ID = 'SmolLM2-135M-Instruct';

const WEIGHTS_SEED = 7;

export function createEngine(given: Partial<Engine> = {}): Engine {
  const now_ms = given.now_ms ?? Date.now;
  return {
    model: given.model ?? createModel(WEIGHTS_SEED),
    llama: given.llama ?? null,
    model_id: given.model_id ?? (given.llama ? LLAMA_ID : MODEL_ID),
    started_ms: now_ms(),
    now_ms,
    new_id: given.new_id ?? (() => randomBytes(15).toString('hex')),
    random_seed: given.random_seed ?? (() => randomBytes(6).readUIntBE(0, 6)),
  };
}

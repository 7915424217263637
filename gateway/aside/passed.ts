// Reads what a body asks for whose route is the backend's affair: `tee`, which works nowhere else, a stream, a model.
import { bodyText } from '../body.ts';
import type { Caller } from '../keys/caller.ts';
import { checkModel } from '../keys/models.ts';
import { Problem } from '../problem.ts';
import { cutTee, readJson } from './asked.ts';

export const WHERE = 'tee works on /v1/chat/completions and /v1/completions.';

export interface Passing {
  readonly body: Buffer;
  /** By its content-type: of any other body `tee` is not looked for. */
  readonly json: boolean;
  /** Whoever may ask for some models only; null where nobody asks which. */
  readonly judged: Caller | null;
}

export interface Passed {
  /** The body for the backend: the bytes as they came, or without `tee`. */
  readonly forward: Buffer | string;
  readonly stream: boolean;
}

/** As it is, where there is nothing to look for: null otherwise. */
export function unread({ body, json, judged }: Passing): Passed | null {
  if (judged !== null || mayName(body, 'stream') || (json && mayName(body, 'tee'))) return null;
  return { forward: body, stream: false };
}

/** @throws {Problem} invalid_json, invalid_request naming the member, model_not_found. */
export function readPassed({ body, json, judged }: Passing): Passed {
  const cuts = json && mayName(body, 'tee');
  if (judged === null && !cuts) return { forward: body, stream: asksForStream(body) };
  const text = bodyText(body);
  const value = readJson(text);
  if (judged !== null) checkModel(judged, text, value);
  return { forward: cuts ? withoutTee(body, text, value) : body, stream: isStream(value) };
}

function withoutTee(body: Buffer, text: string, value: unknown): Buffer | string {
  const { forward, tee } = cutTee(text, value);
  if (tee) throw new Problem('invalid_request', `tee: ${WHERE}`, { param: 'tee' });
  return forward === text ? body : forward;
}

/** Whatever the path is called, and the body's type: a backend may take both otherwise. */
function asksForStream(body: Buffer): boolean {
  if (!mayName(body, 'stream')) return false;
  try {
    return isStream(readJson(bodyText(body)));
  } catch (error) {
    // What could be an object and is not read could ask for one.
    if ((error as Problem).code === 'body_too_large' && body.toString('latin1', 0, 1024).trimStart()[0] === '{')
      throw error;
    return false;
  }
}

const isStream = (value: unknown) => (value as { stream?: unknown } | null)?.stream === true;

/** Whether a member of that name may be in it, written out or escaped: a body without one is not parsed. */
const mayName = (body: Buffer, name: string) => body.includes(`${name}"`) || body.includes('\\u');

// Reads what a generation request asks for, and cuts `tee` out of its text before the backend sees it.
import type { IncomingHttpHeaders } from 'node:http';
import { hasAtMost, parseJson, topLevelMembers, withoutMember } from '../../proto/json.ts';
import {
  chatRequestSchema,
  completionRequestSchema,
  type GenerationRequest,
  isPlainChat,
  isPrompt,
  MAX_MESSAGES,
} from '../../proto/openai.ts';
import { bodyText, MAX_JSON_VALUES } from '../body.ts';
import type { Caller } from '../keys/caller.ts';
import { checkModel } from '../keys/models.ts';
import { Problem } from '../problem.ts';

export type Endpoint = 'chat' | 'completion';

export interface Asked {
  /** What the body says of it. */
  readonly tee: boolean;
  /** The client's body, exactly as received: its text; of a large one its bytes. */
  readonly request: string | Buffer;
  /** The body for the backend: the bytes as they came, or without `tee`. */
  readonly forward: Buffer | string;
  readonly choices: number;
  readonly stream: boolean;
  readonly model: string | undefined;
}

const SCHEMAS = { chat: chatRequestSchema, completion: completionRequestSchema.omit({ prompt: true }) };

/** @throws {Problem} invalid_json, invalid_request naming the member, model_not_found. */
export function readAsked(endpoint: Endpoint, body: Buffer, caller: Caller): Asked {
  const text = bodyText(body);
  const value = readJson(text);
  const request = endpoint === 'chat' && isPlainChat(value) ? value : judged(endpoint, value);
  checkModel(caller, text, value);
  const { forward, tee } = cutTee(text, value);
  return {
    tee,
    request: text,
    forward: forward === text ? body : forward,
    choices: choicesOf(endpoint, request.n, (value as { prompt?: unknown }).prompt),
    stream: request.stream === true,
    model: request.model,
  };
}

/** @throws {Problem} invalid_request naming the member. */
function judged(endpoint: Endpoint, value: unknown): Omit<GenerationRequest, 'messages' | 'prompt'> {
  const { messages, prompt } = (value ?? {}) as { messages?: unknown; prompt?: unknown };
  // Before they are looked at: of a million that are wrong, zod would tell of each.
  if (endpoint === 'chat' && Array.isArray(messages) && messages.length > MAX_MESSAGES)
    throw new Problem('invalid_request', `messages: must be ${MAX_MESSAGES} at most.`, { param: 'messages' });
  const parsed = SCHEMAS[endpoint].safeParse(value);
  if (parsed.success && endpoint === 'completion' && !isPrompt(prompt))
    throw new Problem('invalid_request', 'prompt: must be a text, texts, a token list or token lists.', {
      param: 'prompt',
    });
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const param = issue === undefined || issue.path.length === 0 ? undefined : issue.path.join('.');
  const message = param === undefined ? 'The request body must be a JSON object.' : `${param}: ${issue?.message}`;
  throw new Problem('invalid_request', message, { param });
}

/** @throws {Problem} invalid_json, body_too_large */
export function readJson(text: string): unknown {
  if (!hasAtMost(text, MAX_JSON_VALUES))
    throw new Problem('body_too_large', `The request body has more than ${MAX_JSON_VALUES} JSON names and values.`);
  try {
    return parseJson(text);
  } catch {
    throw new Problem('invalid_json', 'The request body is not valid JSON.');
  }
}

/** The client's text less `tee`, and what that said. `value`: the text, parsed. @throws {Problem} invalid_request when it is given twice or is no boolean. */
export function cutTee(text: string, value: unknown): { forward: string; tee: boolean } {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, 'tee')) return { forward: text, tee: false };
  const tee = (value as { tee: unknown }).tee;
  const members = topLevelMembers(text);
  const at = members.findIndex((member) => member.key === 'tee');
  if (members.findLastIndex((member) => member.key === 'tee') !== at)
    throw new Problem('invalid_request', 'tee: given twice.', { param: 'tee' });
  if (typeof tee !== 'boolean') throw new Problem('invalid_request', 'tee: must be true or false.', { param: 'tee' });
  return { forward: withoutMember(text, members, at), tee };
}

/** `x-tee: 1`, for clients that can set only headers. @throws {Problem} invalid_request */
export function teeHeader(headers: IncomingHttpHeaders): boolean {
  const value = headers['x-tee'];
  if (value === undefined || value === '0' || value === 'false') return false;
  if (value === '1' || value === 'true') return true;
  throw new Problem('invalid_request', 'The header x-tee must be 1 or 0.', { param: 'x-tee' });
}

function choicesOf(endpoint: Endpoint, n: number | null | undefined, prompt: unknown): number {
  const many = endpoint === 'completion' && Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return (n ?? 1) * (many ? Math.max(1, prompt.length) : 1);
}

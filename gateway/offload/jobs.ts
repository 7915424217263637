// What is done with a body: what a request asks for is read, `tee` is cut out of it, and an attestation is drafted from an exchange.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { type JsonPart, joined } from '../../proto/fold.ts';
import { duplicateMember, hasAtMost, parseJson, topLevelMembers, withoutMember } from '../../proto/json.ts';
import {
  chatRequestSchema,
  completionRequestSchema,
  type GenerationRequest,
  isPlainChat,
  isPrompt,
  MAX_MESSAGES,
} from '../../proto/openai.ts';
import { buildRaw, MAX_RAW_LENGTH, type Nonce, type StreamDigest } from '../../proto/raw.ts';
import { MANY_BYTES } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import { bodyText, MAX_JSON_VALUES } from '../http/request.ts';
import { type Caller, checkModel } from '../keys/keys.ts';

export type Endpoint = 'chat' | 'completion';

export interface Generation {
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
export function parseGeneration(endpoint: Endpoint, body: Buffer, caller: Caller): Generation {
  const text = bodyText(body);
  const value = readJson(text);
  const request = endpoint === 'chat' && isPlainChat(value) ? value : validated(endpoint, value);
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
function validated(endpoint: Endpoint, value: unknown): Omit<GenerationRequest, 'messages' | 'prompt'> {
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
function readJson(text: string): unknown {
  if (!hasAtMost(text, MAX_JSON_VALUES))
    throw new Problem('body_too_large', `The request body has more than ${MAX_JSON_VALUES} JSON names and values.`);
  try {
    return parseJson(text);
  } catch {
    throw new Problem('invalid_json', 'The request body is not valid JSON.');
  }
}

/** The client's text less `tee`, and what that said. `value`: the text, parsed. @throws {Problem} invalid_request when it is given twice or is no boolean. */
function cutTee(text: string, value: unknown): { forward: string; tee: boolean } {
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

// Reads what a body asks for whose route is the backend's affair: `tee`, which works nowhere else, a stream, a model.

export const TEE_ROUTES_MESSAGE = 'tee works on /v1/chat/completions and /v1/completions.';

// Reads what a generation request asks for, and cuts `tee` out of its text before the backend sees it.

export interface PassThroughRequest {
  readonly body: Buffer;
  /** By its content-type: of any other body `tee` is not looked for. */
  readonly json: boolean;
  /** Whoever may ask for some models only; null where nobody asks which. */
  readonly restrictedCaller: Caller | null;
}

export interface PassThrough {
  /** The body for the backend: the bytes as they came, or without `tee`. */
  readonly forward: Buffer | string;
  readonly stream: boolean;
}

/** As it is, where there is nothing to look for: null otherwise. */
export function passThroughUnparsed({ body, json, restrictedCaller }: PassThroughRequest): PassThrough | null {
  if (restrictedCaller !== null || mayContainMember(body, 'stream') || (json && mayContainMember(body, 'tee')))
    return null;
  return { forward: body, stream: false };
}

/** @throws {Problem} invalid_json, invalid_request naming the member, model_not_found. */
export function parsePassThrough({ body, json, restrictedCaller }: PassThroughRequest): PassThrough {
  const hasTee = json && mayContainMember(body, 'tee');
  if (restrictedCaller === null && !hasTee) return { forward: body, stream: asksForStream(body) };
  const text = bodyText(body);
  const value = readJson(text);
  if (restrictedCaller !== null) checkModel(restrictedCaller, text, value);
  return { forward: hasTee ? withoutTee(body, text, value) : body, stream: isStream(value) };
}

function withoutTee(body: Buffer, text: string, value: unknown): Buffer | string {
  const { forward, tee } = cutTee(text, value);
  if (tee) throw new Problem('invalid_request', `tee: ${TEE_ROUTES_MESSAGE}`, { param: 'tee' });
  return forward === text ? body : forward;
}

/** Whatever the path is called, and the body's type: a backend may take both otherwise. */
function asksForStream(body: Buffer): boolean {
  if (!mayContainMember(body, 'stream')) return false;
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
const mayContainMember = (body: Buffer, name: string) => body.includes(`${name}"`) || body.includes('\\u');

// A draft is an attestation before it is signed: the answer looked at, raw built from it and hashed, and its JSON begun.

/** A backend's whole answer as it came: nobody has looked at it. */
export interface Body {
  readonly body: Buffer;
}

/** What the chunks of a stream fold into. */
export interface Folded {
  /** JSON: its text, or the pieces of a large one. */
  readonly completion: string | readonly JsonPart[];
  readonly stream: StreamDigest;
  /** The backend's id of the completion, if it named one. */
  readonly completionId: string | null;
}

export interface DraftInput {
  /** The client's body, exactly as received: its text, or its bytes. */
  readonly request: string | Buffer;
  readonly response: Body | Folded;
  /** Unix seconds. */
  readonly timestamp: number;
}

export interface Draft {
  readonly completionId: string | null;
  /** In UTF-8. */
  readonly raw: Uint8Array<ArrayBuffer>;
  readonly nonce: Nonce;
  /** The attestation's JSON up to the members that the sidecar adds, in UTF-8. */
  readonly start: Uint8Array<ArrayBuffer>;
  /** Bytes behind `start` that are free for those members: a large start is not copied to stand before them. */
  readonly free_bytes: number;
}

export const badResponse = (message: string) => new Problem('backend_bad_response', message);

/** @throws {Problem} backend_bad_response, and nothing else of its own. */
export function draft({ request, response, timestamp }: DraftInput): Draft {
  const { completionId, completion, ...digest } = 'body' in response ? readWholeResponse(response.body) : response;
  const text = typeof completion === 'string' ? completion : joined(completion);
  const raw = buildRaw({ request: request.toString(), response: text, ...digest, timestamp });
  if (raw.length > MAX_RAW_LENGTH) throw badResponse('Request and answer together are larger than what is attested.');
  const bytes = Buffer.from(raw, 'utf8');
  const nonce = hash('sha256', bytes) as Nonce;
  const start = `{"raw":${JSON.stringify(raw)},"nonce":"${nonce}",`;
  return { completionId, raw: bytes, nonce, ...withFreeBytes(start) };
}

/** For the evidence of a dozen devices. Memory that nobody writes to is only an address. */
const FREE_BYTES = 256 * 1024;

function withFreeBytes(text: string): Pick<Draft, 'start' | 'free_bytes'> {
  if (text.length <= MANY_BYTES) return { start: Buffer.from(text), free_bytes: 0 };
  const memory = Buffer.allocUnsafeSlow(Buffer.byteLength(text) + FREE_BYTES);
  return { start: memory.subarray(0, memory.write(text)), free_bytes: FREE_BYTES };
}

/** @throws {Problem} backend_bad_response unless the body is a JSON object that nobody has put an attestation into. */
function readWholeResponse(body: Buffer): Pick<Folded, 'completion' | 'completionId'> {
  if (!isUtf8(body)) throw badResponse('The backend sent an answer that is not UTF-8.');
  const completion = body.toString('utf8');
  let value: unknown;
  try {
    value = parseJson(completion);
  } catch {
    throw badResponse('The backend sent an answer that is not JSON.');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw badResponse('The backend sent an answer that is not a JSON object.');
  if (Object.hasOwn(value, 'attestation')) throw badResponse('The backend sent an attestation of its own.');
  if ('error' in value && value.error !== null) throw badResponse('The backend sent an error as if it were an answer.');
  // Of two members of one name one reader takes the first and another the last: what is read would not be what was signed.
  if (duplicateMember(completion) !== null) throw badResponse('The backend sent an answer that names a member twice.');
  const id = (value as { id?: unknown }).id;
  return { completion, completionId: typeof id === 'string' && id !== '' ? id : null };
}

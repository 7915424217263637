// The jobs on a body: parsing a request, removing `tee` from it, and drafting an attestation.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type * as z from 'zod';
import { buildRaw, CHAT_ENDPOINT, MAX_RAW_LENGTH, type Nonce, type StreamDigest } from '../../proto/attestation/raw.ts';
import { duplicateMember, hasAtMost, isObject, parseJson, topLevelMembers, withoutMember } from '../../proto/json.ts';
import {
  chatRequestSchema,
  completionRequestSchema,
  type GenerationRequest,
  isPrompt,
  MAX_MESSAGES,
  teeSchema,
} from '../../proto/openai.ts';
import { choicesAsked, streamFormOf } from '../../proto/stream/forms.ts';
import { Problem } from '../base/problem.ts';
import { bodyText, MAX_JSON_VALUES } from '../http/body.ts';
import type { Caller } from '../keys/keys.ts';
import { checkModel } from '../keys/models.ts';
import { type Estimate, estimateOf, withUsageAsked } from '../usage/budget.ts';

export type Endpoint = 'chat' | 'completion';

/** How a response is attested. */
export interface Tee {
  /** Under a nonce that it may share. */
  readonly batch: boolean;
  /** In the short form, which names a bundle. */
  readonly compact: boolean;
}

/** What an API key's budget needs of a request: nothing, an estimate of its LLM tokens, or also the backend's count of a stream's. */
export type Metering = 'off' | 'estimate' | 'usage';

export interface Generation {
  /** The attestation that `tee` in the body requests; null: none. */
  readonly tee: Tee | null;
  /** The client's body, exactly as received: its text, or its bytes when it is large. */
  readonly request: string | Buffer;
  /** The body for the backend: the original bytes, or the text without `tee`. */
  readonly forward: Buffer | string;
  readonly choices: number;
  readonly stream: boolean;
  readonly model: string | undefined;
  /** null: the request is not metered. */
  readonly estimate: Estimate | null;
  /** The gateway asks the backend for the usage of the stream, and the client did not. */
  readonly usageAsked: boolean;
}

const SCHEMAS = { chat: chatRequestSchema, completion: completionRequestSchema.omit({ prompt: true }) };

/** @throws {Problem} invalid_json, invalid_request naming the member, model_not_found. */
export function parseGeneration(
  endpoint: Endpoint,
  body: Buffer,
  caller: Caller,
  metering: Metering = 'off',
): Generation {
  const text = bodyText(body);
  const value = readJson(text);
  const request = validated(endpoint, value);
  checkModel(caller, text, value);
  const { forward, tee } = cutTee(text, value);
  const stream = request.stream === true;
  const withUsage = metering === 'usage' && stream && tee === null ? withUsageAsked(forward, value) : null;
  return {
    tee,
    request: text,
    forward: withUsage ?? (forward === text ? body : forward),
    choices: choicesAsked(endpoint === 'chat' ? CHAT_ENDPOINT : '/v1/completions', value),
    stream,
    model: request.model ?? undefined,
    estimate: metering === 'off' ? null : estimateOf(value),
    usageAsked: withUsage !== null,
  };
}

/** @throws {Problem} invalid_request naming the member. */
function validated(endpoint: Endpoint, value: unknown): Omit<GenerationRequest, 'messages' | 'prompt'> {
  const { messages, prompt } = (value ?? {}) as { messages?: unknown; prompt?: unknown };
  // The count is checked first, because zod would report an issue for each of a million invalid messages.
  if (endpoint === 'chat' && Array.isArray(messages) && messages.length > MAX_MESSAGES)
    throw new Problem('invalid_request', `messages: must be ${MAX_MESSAGES} at most.`, { param: 'messages' });
  const parsed = SCHEMAS[endpoint].safeParse(value);
  if (parsed.success && endpoint === 'completion' && !isPrompt(prompt))
    throw new Problem('invalid_request', 'prompt: must be a text, texts, a token list or token lists.', {
      param: 'prompt',
    });
  if (parsed.success) return parsed.data;
  throw invalidMember(parsed.error.issues[0]);
}

/** @param within the path to the value that was parsed. */
function invalidMember(issue: z.core.$ZodIssue | undefined, within: readonly string[] = []): Problem {
  const path = [...within, ...(issue?.path ?? [])];
  const param = path.length === 0 ? undefined : path.join('.');
  const message = param === undefined ? 'The request body must be a JSON object.' : `${param}: ${issue?.message}`;
  return new Problem('invalid_request', message, { param });
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

/**
 * Returns the client's text without `tee`, and the value of `tee`. `value` is the parsed text.
 * @throws {Problem} invalid_request when `tee` occurs twice or is of a wrong form.
 */
function cutTee(text: string, value: unknown): { forward: string; tee: Tee | null } {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, 'tee')) return { forward: text, tee: null };
  const members = topLevelMembers(text);
  const at = members.findIndex((member) => member.key === 'tee');
  if (members.findLastIndex((member) => member.key === 'tee') !== at)
    throw new Problem('invalid_request', 'tee: given twice.', { param: 'tee' });
  return { forward: withoutMember(text, members, at), tee: readTee((value as { tee: unknown }).tee) };
}

/** @throws {Problem} invalid_request naming the member. */
function readTee(value: unknown): Tee | null {
  const parsed = teeSchema.safeParse(value);
  if (!parsed.success) throw invalidMember(parsed.error.issues[0], ['tee']);
  const { data } = parsed;
  if (data === false || data === null) return null;
  const { batch = false, compact = false } = data === true ? {} : data;
  return { batch, compact };
}

// Parses a body of a route that only the backend knows: `tee`, `stream` and `model`.

export interface PassThroughRequest {
  readonly body: Buffer;
  /** Its content-type is JSON, or it {@link beginsObject}. Of other bodies `tee` is not searched. */
  readonly json: boolean;
  /** The caller, where it is restricted to some models; null otherwise. */
  readonly restrictedCaller: Caller | null;
  /** A header requests tee, so the result must say whether the body is an object. */
  readonly mayAttest: boolean;
  /** The model chooses among several backends, so the result must name it. */
  readonly byModel?: boolean;
  /** The key's usage is counted by model, so the result names the model where it can. */
  readonly counted?: boolean;
  /** The key has a budget, so the result has an estimate. */
  readonly metered?: boolean;
}

export interface PassThrough {
  /** The body for the backend: the original bytes, or the text without `tee`. */
  readonly forward: Buffer | string;
  readonly stream: boolean;
  /** The attestation that `tee` in the body requests; null: none. */
  readonly tee: Tee | null;
  /** The body was parsed and is a JSON object, so it can be attested. */
  readonly object: boolean;
  readonly model: string | undefined;
  /** null: the request is not metered. */
  readonly estimate: Estimate | null;
}

const UNPARSED = { tee: null, object: false, model: undefined, estimate: null } as const;

/** White space, and the byte order marks and zeros of UTF-8, UTF-16 and UTF-32, which some backends' parsers recognize. */
const BEFORE_OBJECT: ReadonlySet<number | undefined> = new Set(
  Buffer.from('\t\n\v\f\r \0\xef\xbb\xbf\xfe\xff', 'latin1'),
);
const BRACE = 0x7b;

/** Whether the body's first character is `{`, so that a backend may read it as JSON whatever its content-type says. */
export function beginsObject(body: Buffer): boolean {
  let at = 0;
  while (BEFORE_OBJECT.has(body[at])) at++;
  return body[at] === BRACE;
}

/** Returns the body unchanged when it need not be parsed, else null. */
export function passThroughUnparsed({
  body,
  json,
  restrictedCaller,
  mayAttest,
  byModel = false,
  counted = false,
  metered = false,
}: PassThroughRequest): PassThrough | null {
  if (metered && json) return null;
  if (restrictedCaller !== null || mayContainMember(body, 'stream')) return null;
  if ((byModel || counted) && mayContainMember(body, 'model')) return null;
  if (json && (mayAttest || mayNameTee(body))) return null;
  return { ...UNPARSED, forward: body, stream: false };
}

/** @throws {Problem} invalid_json, invalid_request naming the member, model_not_found. */
export function parsePassThrough(request: PassThroughRequest): PassThrough {
  const { body, json, restrictedCaller, mayAttest, byModel = false, counted = false, metered = false } = request;
  const wantsModel = byModel || counted;
  const hasTee = json && namesTee(body);
  if (restrictedCaller === null && !hasTee && !(json && (mayAttest || metered))) {
    const mustParse = mayContainMember(body, 'stream') || (byModel && mayContainMember(body, 'model'));
    const value = mustParse || (counted && mayContainMember(body, 'model')) ? readIfJson(body, mustParse) : null;
    return { ...UNPARSED, forward: body, stream: isStream(value), model: wantsModel ? modelOf(value) : undefined };
  }
  const text = bodyText(body);
  const value = text === '' ? null : readJson(text);
  if (restrictedCaller !== null) checkModel(restrictedCaller, text, value);
  const { forward, tee } = hasTee ? cutTee(text, value) : { forward: text, tee: null };
  const object = json && isObject(value);
  return {
    forward: forward === text ? body : forward,
    stream: isStream(value),
    tee,
    object,
    model: object || wantsModel ? modelOf(value) : undefined,
    estimate: metered ? estimateOf(value) : null,
  };
}

/**
 * Returns null for a body that is not JSON. Path and content-type do not matter, because a backend may ignore both. A body that is too
 * large to parse is rejected with `mustParse`, and null without.
 */
function readIfJson(body: Buffer, mustParse: boolean): unknown {
  try {
    return readJson(bodyText(body));
  } catch (error) {
    // A body that may be an object but is too large to parse could ask for a stream, or name a model.
    if (
      mustParse &&
      (error as Problem).code === 'body_too_large' &&
      body.toString('latin1', 0, 1024).trimStart()[0] === '{'
    )
      throw error;
    return null;
  }
}

function modelOf(value: unknown): string | undefined {
  const model = (value as { model?: unknown } | null)?.model;
  return typeof model === 'string' ? model : undefined;
}

const isStream = (value: unknown) => (value as { stream?: unknown } | null)?.stream === true;

/** Whether a member of that name may occur, literal or escaped. A body without it is not parsed. */
const mayContainMember = (body: Buffer, name: string) => body.includes(`${name}"`) || body.includes('\\u');

/** The member `tee`, also escaped, or as parsers take it that accept more than JSON. */
const NAMES_TEE = /(?<!\w)(?:t|\\u0074)(?:e|\\u0065){2}(?:["']| *:)/;
/** One of these is in each body that names `tee`. A zero byte is of UTF-16 or UTF-32. */
const IN_NAMES_TEE = ['tee"', "tee'", 'tee:', 'tee ', '\\u00', '\0'];

const mayNameTee = (body: Buffer): boolean => IN_NAMES_TEE.some((text) => body.includes(text));
/** Such a body is refused unless it is JSON in UTF-8: what the backend would make of `tee` is not known. */
const namesTee = (body: Buffer): boolean =>
  mayNameTee(body) && NAMES_TEE.test(body.toString('latin1').replaceAll('\0', ''));

export const isForm = (type: string): boolean => /^multipart\/form-data\b/i.test(type);

/** The field `model` of a form, such as that of a transcription; null without one. */
export async function modelInForm(type: string, body: Buffer): Promise<string | null> {
  if (!isForm(type)) return null;
  try {
    const form = await new Response(new Uint8Array(body), { headers: { 'content-type': type } }).formData();
    const model = form.get('model');
    return typeof model === 'string' ? model : null;
  } catch {
    // The body is no form. The backend will reject it.
    return null;
  }
}

// A draft is an attestation before it is signed: the response is validated, raw is built and hashed, and the JSON is begun.

/** A backend's whole response as it arrived, not validated. */
export interface Body {
  readonly body: Buffer;
}

/** The result of folding the chunks of a stream. */
export interface Folded {
  /** The completion's JSON. */
  readonly completion: string;
  readonly stream: StreamDigest;
  /** The last id that the backend gave the completion, if it named one. */
  readonly completionId: string | null;
}

export interface DraftInput {
  /** The request's path. */
  readonly endpoint: string;
  /** The session that raw names. */
  readonly session?: string | undefined;
  /** The client's body, exactly as received: its text, or its bytes. */
  readonly request: string | Buffer;
  readonly response: Body | Folded;
  /** Unix seconds. */
  readonly timestamp: number;
}

export interface Draft {
  readonly completionId: string | null;
  /** raw in UTF-8. */
  readonly raw: Uint8Array<ArrayBuffer>;
  /** SHA-256 of raw. */
  readonly digest: Nonce;
  /** The attestation's JSON with raw, up to the members that follow it, in UTF-8. */
  readonly start: Uint8Array<ArrayBuffer>;
}

export const badResponse = (message: string, cause?: unknown) =>
  new Problem('backend_bad_response', message, { cause });

/** The answer, or a single event of it, is larger than MAX_ANSWER_BYTES. */
export const answerTooLarge = (max_answer_bytes: number) =>
  new Problem(
    'answer_too_large',
    `The answer is larger than ${max_answer_bytes} bytes, the most that is attested (MAX_ANSWER_BYTES).`,
  );

/** @throws {Problem} backend_bad_response, and no other error of its own. */
export function draft({ endpoint, session, request, response, timestamp }: DraftInput): Draft {
  const { completionId, completion, ...ofStream } =
    'body' in response ? readWholeResponse(endpoint, response.body) : response;
  const raw = buildRaw({
    endpoint,
    session,
    request: request.toString(),
    response: completion,
    ...ofStream,
    timestamp,
  });
  if (raw.length > MAX_RAW_LENGTH)
    throw badResponse(
      `Request and answer together have more than ${MAX_RAW_LENGTH} characters, the most that is attested. No setting raises it.`,
    );
  const bytes = Buffer.from(raw, 'utf8');
  const digest = hash('sha256', bytes) as Nonce;
  return { completionId, raw: bytes, digest, start: Buffer.from(`{"raw":${JSON.stringify(raw)},`) };
}

/** An object with an `error` of its own, such as a failed job. An endpoint that generates responses returns no such object. */
const isResource = (endpoint: string, value: object): boolean =>
  streamFormOf(endpoint) === null && 'id' in value && typeof value.id === 'string' && !('choices' in value);

/** vLLM's error has `object: "error"`, Anthropic's has `type: "error"`, every other a member `error`. */
const isError = (endpoint: string, value: Record<string, unknown>): boolean =>
  value.object === 'error' ||
  (((value.error ?? null) !== null || value.type === 'error') && !isResource(endpoint, value));

/** @throws {Problem} backend_bad_response unless the body is a JSON object without an attestation. */
function readWholeResponse(endpoint: string, body: Buffer): Pick<Folded, 'completion' | 'completionId'> {
  if (!isUtf8(body)) throw badResponse('The backend sent an answer that is not UTF-8.');
  const completion = body.toString('utf8');
  let value: unknown;
  try {
    value = parseJson(completion);
  } catch {
    throw badResponse('The backend sent an answer that is not JSON.');
  }
  if (!isObject(value)) throw badResponse('The backend sent an answer that is not a JSON object.');
  if (Object.hasOwn(value, 'attestation')) throw badResponse('The backend sent an attestation of its own.');
  if (isError(endpoint, value)) throw badResponse('The backend sent an error as if it were an answer.');
  // Parsers differ in which of two members of one name they take, so the signed text would be ambiguous.
  if (duplicateMember(completion) !== null) throw badResponse('The backend sent an answer that names a member twice.');
  const { id } = value;
  return { completion, completionId: typeof id === 'string' && id !== '' ? id : null };
}

// Reads the input of a verification: an attestation, a response that carries one, or bare evidence. It is strict about JSON.
import { type Attestation, type Evidence, MAX_DEVICES } from '../../proto/attestation/attestation.ts';
import {
  duplicateMember,
  isObject,
  JsonTextError,
  type Member,
  topLevelMembers,
  withoutMember,
} from '../../proto/json.ts';
import { isFinalResponse } from '../../proto/stream/events.ts';
import { isDigest } from '../common/bytes.ts';
import { CheckFailure, type Limits } from '../common/checks.ts';
import { bounded, parseBounded } from '../common/limited.ts';
import type { DeviceInput } from '../gpu/device-evidence.ts';

export interface Input {
  /** `token` is `''` where only the bundle has it. */
  readonly attestation: Attestation;
  /** SHA-256 of the bundle that a compact attestation names; null: it is whole. */
  readonly bundle: string | null;
  /** The response that carried the attestation, without it; null where the attestation came alone. */
  readonly carrier: Carrier | null;
}

export interface Carrier {
  /** The exact text; null where a parsed object was given. */
  readonly text: string | null;
  readonly value: Readonly<Record<string, unknown>>;
}

const MAX_BASE64_CHARACTERS = 4_000_000;
/** The members of an attestation. Where it comes by itself, nothing else may be there: a client could show it, and nobody signed it. */
const MEMBERS = ['raw', 'nonce', 'token', 'evidence', 'batch', 'cpu', 'bundle'] as const;
/** The members of the event that completes a stream of /v1/responses. */
const EVENT_MEMBERS: readonly string[] = ['type', 'sequence_number', 'response'];

const invalid = (message: string) => new CheckFailure('not_an_attestation', message);
const unsigned = (message: string) => new CheckFailure('unsigned_member', message);

/**
 * @param input an attestation, or a response that carries one: an object, its JSON text, or that text as a JSON string.
 * @param event the caller says that the input is an event of a stream. Nothing else is unwrapped.
 * @throws {CheckFailure} not_json, not_an_attestation, unsigned_member, event_not_expected, too_large
 */
export function readInput(input: unknown, limits: Limits = {}, event = false): Input {
  if (typeof input !== 'string') return fromObject(input, limits, event);
  const { value, text } = parse(input, limits);
  if (!isObject(value)) throw invalid('not a JSON object');
  const members = uniqueMembers(text);
  const inner = event ? finalResponse(value, members, text) : null;
  if (inner === null) return fromText(value, members, text, limits);
  noDuplicates(`${text.slice(0, inner.from)}null${text.slice(inner.from + inner.text.length)}`);
  return fromText(responseOf(value), uniqueMembers(inner.text), inner.text, limits);
}

function fromText(value: Record<string, unknown>, members: readonly Member[], text: string, limits: Limits): Input {
  const at = members.findIndex(({ key }) => key === 'attestation');
  const member = members[at];
  // An object with this member is the response that carries the attestation, and is compared as such.
  if (member === undefined) {
    noDuplicates(text);
    return { ...readAlone(value, limits), carrier: null };
  }
  noDuplicates(text.slice(member.valueStart, member.valueEnd));
  const { attestation, ...rest } = value;
  return {
    ...readAttestation(unwrapped(attestation, limits), limits),
    carrier: { text: withoutMember(text, members, at), value: rest },
  };
}

function fromObject(input: unknown, limits: Limits, event: boolean): Input {
  if (!isObject(input)) throw invalid('not an object');
  const carrier = event && isFinalResponse(input.type) && isObject(input.response) ? responseOf(input) : input;
  if (!Object.hasOwn(carrier, 'attestation')) return { ...readAlone(carrier, limits), carrier: null };
  const { attestation, ...value } = carrier;
  return { ...readAttestation(unwrapped(attestation, limits), limits), carrier: { text: null, value } };
}

/** The response in a final event. Only the stream's hash covers the event's other members. */
function responseOf(event: Record<string, unknown>): Record<string, unknown> {
  const beside = Object.keys(event).find((name) => !EVENT_MEMBERS.includes(name));
  if (beside !== undefined) throw unsigned(`an event has the member ${quoted(beside)}, which nobody signed`);
  return event.response as Record<string, unknown>;
}

/** An attestation that no response carries. */
function readAlone(value: Record<string, unknown>, limits: Limits): Omit<Input, 'carrier'> {
  if (isFinalResponse(value.type) && isObject(value.response))
    throw new CheckFailure('event_not_expected', 'it is an event of a stream: it counts only where the caller says so');
  const names: readonly string[] = MEMBERS;
  const beside = Object.keys(value).find((name) => !names.includes(name));
  if (beside !== undefined && MEMBERS.every((name) => !Object.hasOwn(value, name)))
    throw invalid('it carries no attestation');
  if (beside !== undefined)
    throw unsigned(`an attestation by itself has the member ${quoted(beside)}, which nobody signed`);
  return readAttestation(value, limits);
}

/** Parses an attestation that is a JSON string. */
function unwrapped(value: unknown, limits: Limits): unknown {
  if (typeof value !== 'string') return value;
  const inner = parseBounded(value, limits);
  if (isObject(inner)) noDuplicates(value);
  return inner;
}

function parse(input: string, limits: Limits): { value: unknown; text: string } {
  const text = input.startsWith('\ufeff') ? input.slice(1) : input;
  const value = parseBounded(text, limits);
  return typeof value === 'string' ? { value: parseBounded(value, limits), text: value } : { value, text };
}

function readAttestation(value: unknown, limits: Limits): Omit<Input, 'carrier'> {
  if (!isObject(value)) throw invalid('the attestation is not an object');
  const { raw, nonce, token: given, evidence, batch, cpu, bundle = null } = own(value, MEMBERS);
  if (bundle !== null && !isDigest(bundle)) throw invalid('bundle must be 64 lowercase hex digits');
  const token = bundle !== null && given === undefined ? '' : given;
  if (typeof raw !== 'string' || typeof token !== 'string' || raw === '' || given === '')
    throw invalid('raw and token must be strings');
  if (!isDigest(nonce)) throw invalid('nonce must be 64 lowercase hex digits');
  bounded(raw, limits);
  if (cpu !== undefined && !isObject(cpu)) throw invalid('cpu must be an object');
  const attestation = {
    raw,
    nonce,
    token,
    ...(evidence === undefined ? {} : { evidence: devices(evidence).map((one) => readEvidence(one)) }),
    // Unchecked: batch.ts reports what is wrong with it.
    ...(batch === undefined ? {} : { batch: batch as Readonly<Record<string, unknown>> }),
    ...(cpu === undefined ? {} : { cpu }),
  };
  return { attestation, bundle };
}

function readEvidence(value: unknown): Evidence {
  const { arch, report, certificate_chain } = own(value, ['arch', 'report', 'certificate_chain']);
  if (!isArch(arch) || !isBase64(report) || !isBase64(certificate_chain))
    throw invalid('evidence must be a list of {arch, report, certificate_chain}');
  return { arch, report, certificate_chain };
}

/** The evidence over a session's statement, in our own form. @throws {CheckFailure} not_an_attestation */
export const readSessionEvidence = (value: unknown): Evidence[] => devices(value).map((one) => readEvidence(one));

/**
 * Bare evidence, in NVIDIA's form `[{arch, certificate, evidence, nonce}]` or in ours `[{arch, report, certificate_chain}]`.
 * @throws {CheckFailure} not_json, not_an_attestation, too_large
 */
export function readDevices(input: unknown, limits: Limits = {}): DeviceInput[] {
  if (typeof input !== 'string') return devices(input).map(readDevice);
  const { value, text } = parse(input, limits);
  noDuplicates(text);
  return devices(value).map(readDevice);
}

function readDevice(value: unknown): DeviceInput {
  const it = own(value, ['arch', 'report', 'certificate_chain', 'evidence', 'certificate', 'nonce']);
  const ours = 'report' in it || 'certificate_chain' in it;
  if (ours && ('evidence' in it || 'certificate' in it)) throw invalid('evidence in two forms at once');
  const [report, chain] = ours ? [it.report, it.certificate_chain] : [it.evidence, it.certificate];
  const nonce = it.nonce ?? null;
  if (!isArch(it.arch) || !isBase64(report) || !isBase64(chain))
    throw invalid('evidence must be a list of {arch, certificate, evidence, nonce}');
  if (nonce !== null && (typeof nonce !== 'string' || !/^(0x)?[0-9a-fA-F]{64}$/.test(nonce)))
    throw invalid('a nonce must be 64 hex digits');
  return { arch: it.arch, report, chain, nonce: nonce?.toLowerCase().replace('0x', '') ?? null };
}

function devices(value: unknown): readonly unknown[] {
  if (!Array.isArray(value) || value.length === 0) throw invalid('evidence must be a list that is not empty');
  if (value.length > MAX_DEVICES) throw invalid(`evidence of more than ${MAX_DEVICES} devices`);
  // Index by index: a list that was given parsed may have holes, which its own methods skip.
  return Array.from({ length: value.length }, (_, i) => value[i] as unknown);
}

/** Own members only: inherited members are no evidence. */
function own<K extends string>(value: unknown, names: readonly K[]): Partial<Record<K, unknown>> {
  if (!isObject(value)) throw invalid('not an object');
  return Object.fromEntries(
    names.filter((name) => Object.hasOwn(value, name)).map((name) => [name, value[name]]),
  ) as Partial<Record<K, unknown>>;
}

const isArch = (value: unknown): value is string => typeof value === 'string' && /^[\w .-]{1,32}$/.test(value);
const isBase64 = (value: unknown): value is string =>
  typeof value === 'string' && value.length >= 4 && value.length <= MAX_BASE64_CHARACTERS;

/** The top-level members, whose names must be unique. */
function uniqueMembers(text: string): Member[] {
  try {
    const members = topLevelMembers(text);
    if (new Set(members.map(({ key }) => key)).size < members.length) throw invalid('a member appears twice');
    return members;
  } catch (cause) {
    if (!(cause instanceof JsonTextError)) throw cause;
    throw invalid(cause.message);
  }
}

/**
 * Refuses an object, at any depth, in which a name occurs twice: parsers differ in which of the two they take.
 * @param text JSON. @throws {CheckFailure} not_an_attestation
 */
export function noDuplicates(text: string): void {
  const name = duplicateMember(text);
  if (name !== null) throw invalid(`the member ${quoted(name)} appears twice`);
}

const quoted = (name: string) => JSON.stringify(name.slice(0, 64));

// Finds the attestation in the exact text of a response or of a chunk, and cuts it out.

/** The exact text of the first member `attestation`; null where there is none. Not yet checked. */
export function attestationIn(text: string): string | null {
  const found = find(text);
  return found === null ? null : found.text.slice(found.member.valueStart, found.member.valueEnd);
}

/** Returns the text without its attestation where that equals `checked`, and otherwise the text unchanged. */
export function withoutAttestation(text: string, checked: Attestation): string {
  const found = find(text);
  if (found === null) return text;
  const { from, text: carrier, members, member } = found;
  if (!isSameAttestation(carrier.slice(member.valueStart, member.valueEnd), checked)) return text;
  const cut = withoutMember(carrier, members, members.indexOf(member));
  return text.slice(0, from) + cut + text.slice(from + carrier.length);
}

/** The text of an object within another text, and its offset there. */
interface Part {
  readonly from: number;
  readonly text: string;
}

interface Found extends Part {
  readonly members: Member[];
  readonly member: Member;
}

/** The object that carries an attestation: the text's own, or the response inside of a final event. */
function find(text: string): Found | null {
  // A name may be written in escapes.
  if (!text.includes('attestation') && !text.includes('\\u')) return null;
  try {
    const members = topLevelMembers(text);
    const member = members.find(({ key }) => key === 'attestation');
    if (member !== undefined) return { from: 0, text, members, member };
    const type = members.find(({ key }) => key === 'type');
    const value = { type: type === undefined ? null : JSON.parse(text.slice(type.valueStart, type.valueEnd)) };
    const inner = finalResponse(value, members, text);
    if (inner === null) return null;
    const own = topLevelMembers(inner.text);
    const within = own.find(({ key }) => key === 'attestation');
    return within === undefined ? null : { ...inner, members: own, member: within };
  } catch {
    return null;
  }
}

/** The response inside of the event that completes a stream of /v1/responses; null for anything else. */
function finalResponse({ type }: { readonly type?: unknown }, members: readonly Member[], text: string): Part | null {
  const member = isFinalResponse(type) ? members.find(({ key }) => key === 'response') : undefined;
  if (member === undefined || text[member.valueStart] !== '{') return null;
  return { from: member.valueStart, text: text.slice(member.valueStart, member.valueEnd) };
}

/** No hash covers the text that is cut out, so it must be a well-formed attestation with the same raw and nonce. */
function isSameAttestation(text: string, { raw, nonce }: Attestation): boolean {
  try {
    const { attestation, carrier } = readInput(text, { maxCharacters: Number.POSITIVE_INFINITY });
    return carrier === null && attestation.raw === raw && attestation.nonce === nonce;
  } catch {
    return false;
  }
}

// The kind of a file.

/** The kind of a file, by its shape alone. Anything unknown counts as an attestation, whose reader reports what is wrong. */
export type Kind = 'attestation' | 'evidence' | 'cpu' | 'session';

/**
 * @param input a text, or the bytes of a stream. A text over the limits is not parsed: it counts as an attestation too, and its reader
 * reports `too_large`.
 */
export function kindOf(input: string | Uint8Array, limits: Limits = {}): Kind {
  if (typeof input !== 'string') return 'attestation';
  const value = parsed(input, limits);
  if (Array.isArray(value)) return 'evidence';
  if (!isObject(value) || 'raw' in value || 'attestation' in value) return 'attestation';
  if ('statement' in value && 'gpu' in value) return 'session';
  return 'type' in value && 'report' in value ? 'cpu' : 'attestation';
}

/** undefined where it is no JSON, or more than the limits allow. */
function parsed(input: string, limits: Limits): unknown {
  try {
    return parse(input, limits).value;
  } catch (error) {
    if (error instanceof CheckFailure) return undefined;
    throw error;
  }
}

// Reads the JSON of release bundles, statements and trusted roots: the members that are known and no others.
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import { EncodingError, fromBase64, utf8 } from '../common/bytes.ts';
import { CheckFailure, type FailureCode } from '../common/checks.ts';

export type Json = Readonly<Record<string, unknown>>;

/** A member is not what it must be; the reader of the whole gives it a code. */
export class FormError extends Error {
  override readonly name = 'FormError';
}

/** @throws {FormError} a text that is no JSON, or names a member twice. */
export function parsed(text: string): unknown {
  try {
    return parseStrict(text);
  } catch (cause) {
    throw new FormError(cause instanceof JsonTextError ? cause.message : 'it is not JSON', { cause });
  }
}

/** An object with these members and no others. @throws {FormError} */
export function members(
  value: unknown,
  where: string,
  needed: readonly string[],
  optional: readonly string[] = [],
): Json {
  if (!isObject(value)) throw new FormError(`${where} is not an object`);
  const object = { ...value };
  const other = Object.keys(object).find((name) => !needed.includes(name) && !optional.includes(name));
  if (other !== undefined) throw new FormError(`${where} has the member ${other.slice(0, 64)}, which is not known`);
  const missing = needed.find((name) => !Object.hasOwn(object, name));
  if (missing !== undefined) throw new FormError(`${where} has no ${missing}`);
  return object;
}

/** @throws {FormError} */
export function list(value: unknown, where: string, most: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > most) throw new FormError(`${where} is not a list of at most ${most}`);
  return value;
}

/** @throws {FormError} */
export function text(value: unknown, where: string, form: RegExp | null = null): string {
  if (typeof value !== 'string' || form?.test(value) === false) throw new FormError(`${where} is not what it must be`);
  return value;
}

/** @throws {FormError} */
export function base64(value: unknown, where: string): Uint8Array {
  try {
    return fromBase64(text(value, where));
  } catch (cause) {
    if (cause instanceof EncodingError) throw new FormError(`${where} is not base64`, { cause });
    throw cause;
  }
}

/** A whole number, as protobuf's JSON writes 64 bits. @throws {FormError} */
export const whole = (value: unknown, where: string): bigint => BigInt(text(value, where, /^(0|[1-9]\d{0,17})$/));

/** Runs a reader, and gives its errors a code. @throws {CheckFailure} */
export function withCode<T>(code: FailureCode, what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (cause instanceof FormError) throw new CheckFailure(code, `${what}: ${cause.message}`, { cause });
    throw cause;
  }
}

/** @throws {CheckFailure} release_too_large: counted in characters before anything is read. */
export function refuseLarge(given: string, most: number, what: string): void {
  if (given.length > most) throw new CheckFailure('release_too_large', `${what} has more than ${most} characters`);
}

/** DSSE's pre-authentication encoding: the bytes that are signed. */
export function preAuthentication(type: string, payload: Uint8Array): Uint8Array {
  const head = utf8(`DSSEv1 ${utf8(type).length} ${type} ${payload.length} `);
  const bytes = new Uint8Array(head.length + payload.length);
  bytes.set(head);
  bytes.set(payload, head.length);
  return bytes;
}

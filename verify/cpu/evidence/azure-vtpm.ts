// Reads the evidence of an Azure guest behind a paravisor: the processor signs a hash of JSON that names the key of a virtual TPM,
// and that TPM signs the caller's bytes (TPM 2.0 part 2, §10.12; layout of the HCL report as az-cvm-vtpm reads it).

import {
  buffered,
  concat,
  digest,
  EncodingError,
  equal,
  fromBase64Url,
  fromUtf8,
  isZero,
  toHex,
} from '../../common/bytes.ts';
import { CheckFailure, type Passed, seen } from '../../common/checks.ts';
import { ByteReader } from './byte-reader.ts';

/** The message that a vTPM signed (TPM 2.0 part 2, §10.12.8), the signature, and the registers that it covers. */
export interface TpmQuote {
  readonly message: Uint8Array;
  readonly signature: Uint8Array;
  readonly pcrs: readonly Uint8Array[];
}

export interface HclReport {
  /** The processor's report; of TDX the unsigned one, whose quote comes separately. */
  readonly hardware: Uint8Array;
  readonly type: 'SEV_SNP' | 'TDX';
  /** The JSON's exact bytes, which are hashed. */
  readonly runtimeData: Uint8Array;
}

const MAGIC = 0x414c4348; // HCLA, read with the least significant byte first
const HEADER_BYTES = 32;
const HARDWARE_BYTES = 1184;
const RUNTIME_HEADER_BYTES = 20;
const REQUEST_ATTESTATION = 2;
const TYPES: Readonly<Record<number, HclReport['type']>> = { 2: 'SEV_SNP', 4: 'TDX' };
const HASH_SHA256 = 1;

const bad = (message: string, cause?: unknown) => new CheckFailure('cpu_malformed', message, { cause });

/** The members are views of `bytes`; bytes after the runtime data are not read. @throws {CheckFailure} cpu_malformed, cpu_unsupported */
export function parseHclReport(bytes: Uint8Array): HclReport {
  const runtimeAt = HEADER_BYTES + HARDWARE_BYTES;
  if (bytes.length < runtimeAt + RUNTIME_HEADER_BYTES) throw bad('the HCL report is too short');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const number = (at: number) => view.getUint32(at, true);
  if (number(0) !== MAGIC || number(12) !== REQUEST_ATTESTATION) throw bad('this is no HCL report of an attestation');
  const type = TYPES[number(runtimeAt + 8)];
  if (type === undefined) throw new CheckFailure('cpu_unsupported', 'an HCL report of another type');
  if (number(runtimeAt + 12) !== HASH_SHA256) throw new CheckFailure('cpu_unsupported', 'another hash than SHA-256');
  const from = runtimeAt + RUNTIME_HEADER_BYTES;
  const length = number(runtimeAt + 16);
  if (length > bytes.length - from) throw bad('the runtime data runs past the end of the HCL report');
  return {
    hardware: bytes.subarray(HEADER_BYTES, runtimeAt),
    type,
    runtimeData: bytes.subarray(from, from + length),
  };
}

export interface TpmAttest {
  /** The caller's bytes that the TPM signed. */
  readonly extraData: Uint8Array;
  readonly pcrDigest: Uint8Array;
}

const TPM_GENERATED_AND_QUOTE = 'ff5443478018';
/** clockInfo and firmwareVersion. */
const CLOCK_BYTES = 17 + 8;
/** One bank, SHA-256, PCR 0 to 23. */
const ALL_SHA256_PCRS = '00000001000b03ffffff';

/** TPMS_ATTEST of a quote over all of the SHA-256 bank. @throws {CheckFailure} cpu_malformed */
export function parseTpmAttest(message: Uint8Array): TpmAttest {
  const reader = new ByteReader(message, (fault) => bad(`the vTPM's quote: ${fault}`));
  const sized = (): Uint8Array => {
    const [high = 0, low = 0] = reader.take(2);
    return reader.take(high * 256 + low);
  };
  if (toHex(reader.take(6)) !== TPM_GENERATED_AND_QUOTE) throw bad('the vTPM signed something else than a quote');
  sized();
  const extraData = sized();
  reader.take(CLOCK_BYTES);
  if (toHex(reader.take(10)) !== ALL_SHA256_PCRS) throw bad("the vTPM's quote is not over PCR 0 to 23 of SHA-256");
  const pcrDigest = sized();
  reader.end();
  return { extraData, pcrDigest };
}

/**
 * @param reportData of the processor's report, whose signature is checked elsewhere.
 * @throws {CheckFailure} cpu_vtpm_invalid
 */
export async function checkVtpm(
  { runtimeData }: HclReport,
  { message, signature, pcrs }: TpmQuote,
  { pcrDigest }: TpmAttest,
  reportData: Uint8Array,
): Promise<Passed<true>> {
  const hash = await digest('SHA-256', runtimeData);
  if (!equal(hash, reportData.subarray(0, 32)) || !isZero(reportData.subarray(32)))
    throw wrong('the processor signed other runtime data');
  const key = attestationKey(runtimeData);
  if (!(await pkcs1Verify(key, signature, message))) throw wrong("the vTPM's signature does not verify under its key");
  if (!equal(await digest('SHA-256', concat(pcrs)), pcrDigest)) throw wrong('the PCRs are not those of the quote');
  return seen('the processor vouches for the key of the vTPM, which signed these PCRs');
}

const wrong = (message: string, cause?: unknown) => new CheckFailure('cpu_vtpm_invalid', message, { cause });

interface RsaKey {
  readonly kty: 'RSA';
  readonly n: string;
  readonly e: 'AQAB';
}

const AK = 'HCLAkPub';
const RSA_2048_BYTES = 256;

/** Finds the attestation key, which the JSON must name once. */
function attestationKey(runtimeData: Uint8Array): RsaKey {
  let keys: unknown;
  try {
    keys = (JSON.parse(fromUtf8(runtimeData)) as { keys?: unknown } | null)?.keys;
  } catch (cause) {
    throw wrong('the runtime data is not JSON', cause);
  }
  const own = (Array.isArray(keys) ? keys : []).filter((key) => key?.kid === AK);
  const { kty, n, e } = (own[0] ?? {}) as Record<string, unknown>;
  if (own.length !== 1 || kty !== 'RSA' || e !== 'AQAB' || typeof n !== 'string')
    throw wrong('the runtime data does not name the key of a vTPM');
  try {
    const modulus = n.length < 400 ? fromBase64Url(n) : new Uint8Array();
    if (modulus.length === RSA_2048_BYTES && (modulus[0] ?? 0) >= 0x80) return { kty, n, e };
  } catch (cause) {
    if (!(cause instanceof EncodingError)) throw cause;
  }
  throw wrong('the key of the vTPM is not RSA of 2,048 bits');
}

/** TPM_ALG_RSASSA over SHA-256. */
async function pkcs1Verify(jwk: RsaKey, signature: Uint8Array, message: Uint8Array): Promise<boolean> {
  const algorithm = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' };
  try {
    const key = await crypto.subtle.importKey('jwk', { ...jwk }, algorithm, false, ['verify']);
    return await crypto.subtle.verify(algorithm, key, buffered(signature), buffered(message));
  } catch {
    return false;
  }
}

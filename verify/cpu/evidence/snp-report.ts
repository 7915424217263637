// Reads an attestation report of SEV-SNP (AMD 56860, "SEV Secure Nested Paging Firmware ABI", §7.3).
// Nothing that it returns is trusted before the checks in snp-checks.ts have passed.
import { isZero } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';

/** AMD's processors with SEV-SNP. */
export const PRODUCTS = ['Milan', 'Genoa', 'Turin'] as const;
export type Product = (typeof PRODUCTS)[number];

/** Security versions of AMD's firmware. `fmc` is Turin's alone. */
export type SnpTcbPart = 'fmc' | 'bl' | 'tee' | 'snp' | 'ucode';
export type SnpTcb = Readonly<Partial<Record<SnpTcbPart, number>>>;

export interface SnpReport {
  readonly version: number;
  /** Debugging, migration and the like, as the guest's owner allowed them. */
  readonly policy: bigint;
  /** The privilege level of the request: 0 to 3 is the guest; more is the host. */
  readonly vmpl: number;
  readonly platformInfo: bigint;
  readonly maskChipKey: boolean;
  readonly signingKey: 'VCEK' | 'VLEK';
  readonly reportData: Uint8Array;
  readonly measurement: Uint8Array;
  readonly hostData: Uint8Array;
  readonly idKeyDigest: Uint8Array;
  /** From the report's CPUID fields; null in version 2, where only the leaf certificate names it. */
  readonly product: Product | null;
  /** 64 bytes; on Turin 8 bytes and zeros. */
  readonly chipId: Uint8Array;
  /** 8 bytes each, to be read by {@link tcbOf}. */
  readonly tcb: Readonly<Record<(typeof TCBS)[number], Uint8Array>>;
  readonly signed: Uint8Array;
  /** ECDSA P-384, raw r ‖ s, most significant byte first. */
  readonly signature: Uint8Array;
}

export const SNP_REPORT_BYTES = 1184;
export const TCBS = ['current', 'reported', 'committed', 'launch'] as const;
const TCB_AT = { current: 0x38, reported: 0x180, committed: 0x1e0, launch: 0x1f0 } as const;
const SIGNATURE_AT = 0x2a0;
/** r and s have 72 bytes each, the least significant first. */
const NUMBER_BYTES = 72;
const P384_BYTES = 48;
const ECDSA_P384_SHA384 = 1;
const VERSIONS = [2, 3, 4, 5];
const POLICY_ALWAYS_ONE = 1n << 17n;
const AUTHOR_KEY_AND_MASK_AND_SIGNING_KEY = 0x1f;

const bad = (message: string) => new CheckFailure('cpu_malformed', message);
const unsupported = (message: string) => new CheckFailure('cpu_unsupported', message);

/** @throws {CheckFailure} cpu_malformed, cpu_unsupported */
export function parseSnpReport(bytes: Uint8Array): SnpReport {
  if (bytes.length !== SNP_REPORT_BYTES)
    throw bad(`an SEV-SNP report has ${SNP_REPORT_BYTES} bytes, not ${bytes.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.getUint32(0, true);
  if (!VERSIONS.includes(version)) throw unsupported(`an SEV-SNP report of version ${version}`);
  if (view.getUint32(0x34, true) !== ECDSA_P384_SHA384) throw unsupported('a signature other than ECDSA P-384');
  const policy = view.getBigUint64(8, true);
  if ((policy & POLICY_ALWAYS_ONE) === 0n) throw bad('bit 17 of the guest policy is always one, and here is zero');
  const signer = view.getUint32(0x48, true);
  const isReservedZero = reserved(version).every(([from, to]) => isZero(bytes.subarray(from, to)));
  if (!isReservedZero || signer > AUTHOR_KEY_AND_MASK_AND_SIGNING_KEY) throw bad('reserved bytes are not zero');
  const at = (from: number, length: number) => bytes.subarray(from, from + length);
  return {
    version,
    policy,
    vmpl: view.getUint32(0x30, true),
    platformInfo: view.getBigUint64(0x40, true),
    maskChipKey: (signer & 2) !== 0,
    signingKey: signingKey((signer >> 2) & 7),
    reportData: at(0x50, 64),
    measurement: at(0x90, 48),
    hostData: at(0xc0, 32),
    idKeyDigest: at(0xe0, 48),
    product: version === 2 ? null : productOf(view.getUint8(0x188), view.getUint8(0x189)),
    chipId: at(0x1a0, 64),
    tcb: {
      current: at(TCB_AT.current, 8),
      reported: at(TCB_AT.reported, 8),
      committed: at(TCB_AT.committed, 8),
      launch: at(TCB_AT.launch, 8),
    },
    signed: bytes.subarray(0, SIGNATURE_AT),
    signature: bigEndian(bytes),
  };
}

/** The reserved ranges of this version's layout, which must be zero, the unsigned bytes after the signature included. */
function reserved(version: number): (readonly [number, number])[] {
  return [
    [0x4c, 0x50],
    [version === 2 ? 0x188 : 0x18b, 0x1a0],
    [0x1eb, 0x1ec],
    [0x1ef, 0x1f0],
    // Version 5 has two vectors of mitigations.
    [version === 5 ? 0x208 : 0x1f8, SIGNATURE_AT],
    [SIGNATURE_AT + P384_BYTES, SIGNATURE_AT + NUMBER_BYTES],
    [SIGNATURE_AT + NUMBER_BYTES + P384_BYTES, SIGNATURE_AT + 2 * NUMBER_BYTES],
    [SIGNATURE_AT + 2 * NUMBER_BYTES, SNP_REPORT_BYTES],
  ];
}

function bigEndian(bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(2 * P384_BYTES);
  out.set(bytes.subarray(SIGNATURE_AT, SIGNATURE_AT + P384_BYTES).toReversed());
  const s = SIGNATURE_AT + NUMBER_BYTES;
  out.set(bytes.subarray(s, s + P384_BYTES).toReversed(), P384_BYTES);
  return out;
}

function signingKey(code: number): SnpReport['signingKey'] {
  if (code === 0) return 'VCEK';
  if (code === 1) return 'VLEK';
  throw unsupported('a report that neither a VCEK nor a VLEK signed');
}

/** CPUID's family and model, extended ones added in. Siena and Bergamo (A0h) have Genoa's roots. */
function productOf(family: number, model: number): Product {
  if (family === 0x19 && model <= 0x0f) return 'Milan';
  if (family === 0x19 && ((model >= 0x10 && model <= 0x1f) || (model >= 0xa0 && model <= 0xaf))) return 'Genoa';
  if (family === 0x1a && model <= 0x1f) return 'Turin';
  throw unsupported(`a processor of family ${family.toString(16)}h, model ${model.toString(16)}h`);
}

/** Which byte of a TCB version is which part (§2.2 of the ABI); null is reserved. */
const LAYOUTS: Readonly<Record<Product, readonly (SnpTcbPart | null)[]>> = {
  Milan: ['bl', 'tee', null, null, null, null, 'snp', 'ucode'],
  Genoa: ['bl', 'tee', null, null, null, null, 'snp', 'ucode'],
  Turin: ['fmc', 'bl', 'tee', 'snp', null, null, null, 'ucode'],
};

/** The parts of a TCB version; null where a reserved byte is set. */
export function tcbOf(bytes: Uint8Array, product: Product): SnpTcb | null {
  const layout = LAYOUTS[product];
  if (layout.some((part, i) => part === null && bytes[i] !== 0)) return null;
  return Object.fromEntries(layout.flatMap((part, i) => (part === null ? [] : [[part, bytes[i] ?? 0]])));
}

// What the cases are made with: the world, the parts that several files share, and the options that most of them have.
import type { KeyObject } from 'node:crypto';
import { DEVICE_ROOT, makeRoot } from '../../demo/twin/pki.ts';
import type { CheckName, FailureCode } from '../../verify/index.ts';
import { answers, rims } from './endorsements.ts';
import { forge } from './forge.ts';
import { keptProcessor, type Processor } from './processor.ts';
import type { Keep } from './store.ts';
import type { Expectation, Vector, VectorOptions } from './vector.ts';
import { AT, type World } from './world.ts';

/** Writes a part unless it is there. @returns its path within the folder. */
export type Part = (path: string, make: () => string) => string;

export interface Kit {
  readonly world: World;
  readonly part: Part;
  readonly options: VectorOptions;
  /** The attestation in which all is well, as text; it is the same in every case that shares it. */
  readonly attestation_file: string;
  /** Signs tokens as NVIDIA's service would, under a key that the vectors hand in. */
  readonly service: { readonly key: KeyObject; readonly publicKey: KeyObject };
  /** The processor of confidential guests. */
  readonly processor: Processor;
}

/** A case, without its file's name. */
export type Made = Omit<Vector, 'check' | 'expect' | 'options'> & {
  readonly options?: Partial<VectorOptions>;
  readonly skipped?: readonly CheckName[];
  readonly level?: Expectation['level'];
};

export interface Case {
  /** `CHECK.pass.WHAT` or `CHECK.fail.WHAT`. */
  readonly name: string;
  readonly check: CheckName;
  /** null: it passes. */
  readonly code: FailureCode | null;
  readonly make: (kit: Kit) => Promise<Made> | Made;
}

export const pass = (check: CheckName, what: string, make: Case['make']): Case => ({
  name: `${check}.pass.${what}`,
  check,
  code: null,
  make,
});

export const fail = (check: CheckName, what: string, code: FailureCode, make: Case['make']): Case => ({
  name: `${check}.fail.${what}`,
  check,
  code,
  make,
});

/** Checks that do not apply: the caller holds nothing to compare with; a local verifier made the token; both. */
export const UNCOMPARED = ['expected_exchange'] as const;
export const SELF_ASSERTED = ['token_signature'] as const;
export const ALONE = [...UNCOMPARED, ...SELF_ASSERTED] as const;

/** The good attestation, as it is. */
export const good =
  (description: string, options?: Made['options']) =>
  (kit: Kit): Made => ({
    description,
    attestation_file: kit.attestation_file,
    skipped: ALONE,
    ...(options === undefined ? {} : { options }),
  });

/** Makes the parts that most cases share, under the keys that `keep` keeps. */
export async function makeKit(world: World, part: Part, keep: Keep): Promise<Kit> {
  const rim_files = Object.fromEntries(
    [...rims(world.rimSigner)].map(([id, xml]) => [id, part(`parts/${id}.xml`, () => xml)]),
  );
  const ocsp_files = [...answers(world)].map(([name, der]) => part(`parts/ocsp-${name}.b64`, () => base64(der)));
  const attestation = await forge(world);
  // Its certificate is that of a root, because keys are kept with one; only the key is used.
  const service = keep('service', () => makeRoot(DEVICE_ROOT));
  return {
    world,
    part,
    attestation_file: part('parts/attestation.json', () => json(attestation)),
    service: { key: service.key, publicKey: service.certificate.publicKey },
    processor: keptProcessor(keep),
    options: {
      at: AT.toISOString(),
      simulated_root_file: part('parts/device-root.pem', () => world.issuers.root.certificate.pem),
      rim_root_file: part('parts/rim-root.pem', () => world.rimSigner.root.certificate.pem),
      rim_files,
      ocsp_files,
    },
  };
}

export const base64 = (der: Uint8Array): string => `${Buffer.from(der).toString('base64')}\n`;
const WIDTH = 120;

/** As the project's formatter writes it: a list of plain values on one line where it fits. */
export const json = (value: unknown): string => `${written(value, '', 0)}\n`;

function written(value: unknown, indent: string, before: number): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const line = `[${value.map((item) => JSON.stringify(item)).join(', ')}]`;
    const plain = value.every((item) => typeof item !== 'object' || item === null);
    if (plain && before + line.length < WIDTH) return line;
    return `[\n${value.map((item) => `${inner}${written(item, inner, inner.length)}`).join(',\n')}\n${indent}]`;
  }
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  if (members.length === 0) return '{}';
  const lines = members.map(([name, member]) => {
    const head = `${inner}${JSON.stringify(name)}: `;
    return `${head}${written(member, inner, head.length)}`;
  });
  return `{\n${lines.join(',\n')}\n${indent}}`;
}

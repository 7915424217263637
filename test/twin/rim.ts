// Writes reference integrity manifests: SWID tags (ISO/IEC 19770-2) with TCG's RIM attributes, as NVIDIA publishes them.

import { labelled, MEASUREMENT_COUNT, measurementAt, range, TWIN } from '../../demo/twin/identity.ts';
import type { RimSigner } from './rim-signer.ts';
import { type Element, serialize, withSignature } from './xml.ts';

/** What to say differently, for test vectors. By default the twin's own report matches. */
export interface RimOptions {
  readonly version?: string;
  /** All the values allowed at a RIM index, in place of the twin's own. */
  readonly measurements?: ReadonlyMap<number, readonly Uint8Array[]>;
  /** Which indices count, in place of the genuine choice. */
  readonly active?: ReadonlySet<number>;
  /** Whose it is: `GH100` by default. */
  readonly chip?: string;
  /** `GPU` by default. */
  readonly edition?: string;
}

export type RimKind = 'driver' | 'vbios';

const SWID = 'http://standards.iso.org/iso/19770/-2/2015/schema.xsd';
const TCG_RIM = 'https://trustedcomputinggroup.org/resource/tcg-reference-integrity-manifest-rim-information-model/';
const SHA384 = 'http://www.w3.org/2001/04/xmlenc#sha384';

/** The identifiers under which a RIM service keeps the twin's manifests. */
export const RIM_IDS = {
  driver: `NV_GPU_DRIVER_${TWIN.chip}_${TWIN.driver_version}`,
  vbios: `NV_GPU_VBIOS_${TWIN.project}_${TWIN.project_sku}_${TWIN.chip_sku}_${TWIN.vbios_version.replaceAll('.', '')}`,
} as const;

/** The signed manifest as XML text. */
export function makeRim(kind: RimKind, signer: RimSigner, options: RimOptions = {}): string {
  return serialize(withSignature(softwareIdentity(kind, options), signer.signer.key, signer.chain));
}

function softwareIdentity(kind: RimKind, options: RimOptions): Element {
  const version = options.version ?? (kind === 'driver' ? TWIN.driver_version : TWIN.vbios_version);
  return {
    name: 'SoftwareIdentity',
    namespaces: { '': SWID, ns0: SWID, ns2: SHA384 },
    attributes: {
      corpus: 'false',
      name: `SIMULATED ${options.chip ?? TWIN.chip}`,
      patch: 'false',
      supplemental: 'false',
      tagId: labelled(`SIMULATED ${kind} RIM ${version}`).toString('hex'),
      version: '1.0',
      tagVersion: '0',
    },
    children: [
      '\n    ',
      { name: 'ns0:Entity', attributes: { name: TWIN.organization, role: 'softwareCreator tagCreator' } },
      '\n    ',
      meta(version, options),
      '\n    ',
      payload(kind, options),
      '\n',
    ],
  };
}

function meta(version: string, { chip = TWIN.chip, edition = 'GPU' }: RimOptions): Element {
  return {
    name: 'ns0:Meta',
    namespaces: { ns1: TCG_RIM },
    attributes: {
      colloquialVersion: version,
      edition,
      product: chip,
      revision: 'r1',
      PayloadType: 'direct',
      'ns1:BindingSpec': 'RIMIM',
      'ns1:BindingSpecVersion': '1.01',
      'ns1:PlatformManufacturerId': TWIN.manufacturer_id,
      'ns1:PlatformManufacturerStr': TWIN.organization,
      'ns1:PlatformModel': `SIMULATED ${chip}`,
      'ns1:FirmwareManufacturer': TWIN.organization,
      'ns1:FirmwareManufacturerId': TWIN.manufacturer_id,
    },
  };
}

function payload(kind: RimKind, options: RimOptions): Element {
  const children: (Element | string)[] = [];
  for (let index = 0; index < MEASUREMENT_COUNT; index++) {
    const active = (options.active ?? ACTIVE[kind]).has(index);
    const values = options.measurements?.get(index) ?? (active ? allowedAt(index) : [Buffer.alloc(48)]);
    children.push('\n        ', resource(index, active, values));
  }
  return { name: 'ns0:Payload', namespaces: { SHA384 }, children: [...children, '\n    '] };
}

/** What the twin measures, beside others where a genuine manifest lists several: the match is not always the first. */
function allowedAt(index: number): readonly Buffer[] {
  const other = labelled(`SIMULATED measurement ${index}, another build`);
  if (index === 12 || index === 32) return [measurementAt(index), other];
  if (index === 23 || index === 24 || index === 35) return [other, measurementAt(index)];
  return [measurementAt(index)];
}

function resource(index: number, active: boolean, values: readonly Uint8Array[]): Element {
  const hashes = values.map((value, i) => [`ns2:Hash${i}`, Buffer.from(value).toString('hex')] as const);
  return {
    name: 'ns0:Resource',
    attributes: {
      type: 'Measurement',
      index: String(index),
      active: active ? 'True' : 'False',
      alternatives: String(values.length),
      ...Object.fromEntries(hashes),
      name: `SIMULATED_Measurement_${index}`,
      size: '48',
    },
  };
}

/** Which RIM answers for which index, as in the genuine ones. */
const ACTIVE = {
  driver: new Set([7, ...range(21, 40)]) as ReadonlySet<number>,
  vbios: new Set([...range(0, 6), ...range(8, 12)]) as ReadonlySet<number>,
} as const;

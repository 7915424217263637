// Compares the devices of one list of evidence: all GPUs must be in one mode, and behind protected PCIe each GPU must be connected
// to the switches in the list. The opaque data of each device names the others, by 8-byte ids:
//
//   a GPU      the switch at each of its links, zeros for an unused link, and the bytes of each id in reverse order
//   a switch   its own id, and the GPUs at its ports
//
// A GPU states no id of its own, nor does its certificate hold one: the GPUs that the switches name can only be counted.
import { CheckFailure, type Outcome, seen, skipped } from '../common/checks.ts';
import type { DeviceIdentity } from './nvidia.ts';
import type { OpaqueData, PassThrough } from './spdm/opaque.ts';

/** The claims of one device's signed report. null: the report does not have it. */
export interface DeviceClaims extends DeviceIdentity {
  readonly driver: string | null;
  readonly vbios: string | null;
  /** `spt`, `mpt`, `ppcie`: how it is passed through to its guest. */
  readonly mode: PassThrough | null;
  /** Measurements that were compared with reference values. */
  readonly measurements_matched: number | null;
}

/** A device whose report and chain passed. */
export interface VerifiedDevice {
  /** SHA-256 in hex of the boot ROM's key, by which sessions and `policy.devices` list it; null for a chain without one. */
  readonly identity: string | null;
  readonly claims: DeviceClaims;
  readonly opaque: OpaqueData;
  readonly simulated: boolean;
}

/** A fact that valid reports do not prove, because a device that they name did not sign, or because they lack a field. */
interface LeftOpen {
  readonly reason: string;
  /** The unproven fact, as a clause after "That"; null where it adds nothing to the claims of each device. */
  readonly what: string | null;
}

interface IndexedDevice extends VerifiedDevice {
  /** Counted from 0 in the list. */
  readonly index: number;
}

/** @param devices every device of the list, its report and chain found right. @throws {CheckFailure} topology_mismatch */
export function checkTopology(devices: readonly VerifiedDevice[]): Outcome<true> {
  const indexed = devices.map((device, index) => ({ ...device, index }));
  const gpus = indexed.filter(({ claims }) => claims.kind === 'gpu');
  const switches = indexed.filter(({ claims }) => claims.kind === 'switch');
  const [first] = gpus;
  for (const gpu of gpus)
    if (first !== undefined && !sameMode(gpu, first))
      throw mismatch(`device ${gpu.index} is in another mode than device ${first.index}`);
  if (first !== undefined && isProtected(first)) checkFabric(gpus, switches);
  const open = leftOpen(devices);
  if (open.length > 0) return skipped(open.map(({ reason }) => reason).join('; '));
  const count = gpus.length === 1 ? 'one GPU' : `${gpus.length} GPUs in one mode`;
  return seen(
    switches.length === 0
      ? `${count}, not behind protected PCIe`
      : `${count}, behind protected PCIe, and each of the ${switches.length} switches that they name`,
  );
}

/** Empty where the check passes. Only for devices whose reports do not contradict each other. */
export function leftOpen(devices: readonly VerifiedDevice[]): LeftOpen[] {
  const gpus = devices.filter(({ claims }) => claims.kind === 'gpu');
  const switches = devices.filter(({ claims }) => claims.kind === 'switch');
  if (gpus.length === 0) return [{ reason: 'no GPU signed', what: 'any GPU is genuine' }];
  if (!gpus.some(isProtected)) {
    const reason = 'no GPU says that it is behind protected PCIe';
    if (switches.length > 0) return [{ reason, what: 'the switches are those between these GPUs' }];
    const stated = gpus.every((gpu) => statedMode(gpu) !== null);
    return stated ? [] : [{ reason: 'not every report says whether its GPU is behind protected PCIe', what: null }];
  }
  const what = 'the switches between the GPUs are genuine';
  if (switches.length === 0) return [{ reason: 'a GPU is behind protected PCIe, and no switch signed', what }];
  const named = new Set(gpus.flatMap(switchesOf)).size;
  const ports = new Set(switches.flatMap(gpusOf)).size;
  return [
    ...(named > switches.length
      ? [{ reason: `the GPUs name ${named} switches, and ${switches.length} signed`, what }]
      : []),
    ...(ports > gpus.length
      ? [
          {
            reason: `the switches name ${ports} GPUs, and ${gpus.length} signed`,
            what: 'every GPU at these switches is genuine',
          },
        ]
      : []),
  ];
}

/** Each GPU names the same switches, and each switch is one of them and names the same GPUs, no fewer than signed. */
function checkFabric(gpus: readonly IndexedDevice[], switches: readonly IndexedDevice[]): void {
  const [first] = gpus;
  const named = new Set(first === undefined ? [] : switchesOf(first));
  for (const gpu of gpus) {
    if (gpu.opaque.fabricIds === null && switches.length > 0)
      throw mismatch(`device ${gpu.index} does not say at which switches it is`);
    if (!sameSet(named, new Set(switchesOf(gpu))))
      throw mismatch(`device ${gpu.index} is at other switches than device ${first?.index}`);
  }
  const own = new Set<string>();
  const ports = new Set(switches[0] === undefined ? [] : gpusOf(switches[0]));
  for (const one of switches) {
    const [id, ...more] = one.opaque.fabricIds ?? [];
    if (id === undefined || more.length > 0) throw mismatch(`device ${one.index} does not say which switch it is`);
    if (!named.has(id)) throw mismatch(`device ${one.index} is a switch that the GPUs do not name`);
    if (own.has(id)) throw mismatch(`device ${one.index} says that it is a switch that signed before it`);
    own.add(id);
    if (!sameSet(ports, new Set(gpusOf(one))))
      throw mismatch(`device ${one.index} has other GPUs at its ports than device ${switches[0]?.index}`);
  }
  if (switches.length > 0 && ports.size < gpus.length)
    throw mismatch(`the switches name ${ports.size} GPUs, and ${gpus.length} signed`);
}

export const isProtected = ({ claims }: VerifiedDevice) => claims.mode === 'ppcie';

/** null: the report has no such field. */
function statedMode({ claims, opaque }: VerifiedDevice): string | null {
  return claims.mode ?? (opaque.protectedPcie === false ? 'not ppcie' : null);
}

/** Reports of drivers before 590 state only whether protected PCIe is on. Those of the oldest do not, and then it is off. */
function sameMode(a: VerifiedDevice, b: VerifiedDevice): boolean {
  if (isProtected(a) || isProtected(b)) return isProtected(a) && isProtected(b);
  return a.claims.mode === null || b.claims.mode === null || a.claims.mode === b.claims.mode;
}

/** Zeros stand for no device. */
const isId = (id: string) => /[^0]/.test(id);

/** The switches at a GPU's links, by the ids that the switches state themselves. */
const switchesOf = ({ opaque }: VerifiedDevice): string[] =>
  (opaque.fabricIds ?? []).filter(isId).map((id) => (id.match(/../g) ?? []).reverse().join(''));

const gpusOf = ({ opaque }: VerifiedDevice): readonly string[] => (opaque.gpuIds ?? []).filter(isId);

const sameSet = (a: ReadonlySet<string>, b: ReadonlySet<string>) =>
  a.size === b.size && [...a].every((one) => b.has(one));

const mismatch = (message: string) => new CheckFailure('topology_mismatch', message);

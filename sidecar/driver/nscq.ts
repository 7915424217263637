// NSCQ, as the sidecar uses it: lists the switches, reads whether they are locked, and a switch's chain and report over a nonce.

import type { Device } from '../common/attester.ts';
import { NscqError, refusal } from './errors.ts';
import { callAsync, type Koffi, type KoffiLibrary, loadKoffi, NONCE_BYTES, readText } from './ffi.ts';

/** There only where switches were given to this machine. */
export const SWITCH_CONTROL = '/dev/nvidia-nvswitchctl';

// NSCQ's types for koffi, as the headers in NVIDIA's Python package declare them (nscq_attestation.h, API 2.0.0).

const UUID_BYTES = 16;
const CHAIN_BYTES = 0x1400;
const REPORT_BYTES = 0x2000;

/** nscq_attestation_report_t */
interface Report {
  readonly report_size: number;
  readonly report: Uint8Array;
}
/** nscq_attestation_certificate_t */
interface Chain {
  readonly cert_chain: Uint8Array;
  readonly cert_chain_size: number;
}

let types: ReturnType<typeof makeTypes> | undefined;

/** Made once: koffi keeps types by name for the life of the process. */
function nscqTypes(koffi: Koffi): ReturnType<typeof makeTypes> {
  types ??= makeTypes(koffi);
  return types;
}

function makeTypes(koffi: Koffi) {
  const uuid = koffi.array('uint8', UUID_BYTES);
  const callback = (name: string, value: unknown) => koffi.proto(name, 'void', ['void *', 'int8', value, 'void *']);
  return {
    uuid,
    session: koffi.struct({ rc: 'int8', session: 'uintptr_t' }),
    onUuid: callback('countersign_on_uuid', 'void *'),
    onByte: callback('countersign_on_byte', 'int8'),
    onChain: callback(
      'countersign_on_chain',
      koffi.struct({ cert_chain: koffi.array('uint8', CHAIN_BYTES), cert_chain_size: 'uint32' }),
    ),
    onReport: callback(
      'countersign_on_report',
      koffi.struct({ report_size: 'uint32', report: koffi.array('uint8', REPORT_BYTES) }),
    ),
  };
}

// Opens NVIDIA's library for NVSwitches (libnvidia-nscq.so.2, API 2.0.0). It returns values through callbacks, before the call returns.
//
// The call runs on a thread of libuv's pool; koffi runs each callback on the event loop and holds that thread meanwhile, so the event
// loop never waits for a switch.

const MOUNT_DEVICES = 1;
const LABEL_BYTES = 64;

/** The types of the values at a path. */
interface NscqValues {
  uuid: string;
  byte: number;
  chain: Uint8Array;
  report: Uint8Array;
}
type NscqKind = keyof NscqValues;

/** One value at a path, with its switch's label and a return code, which is below zero for an error. */
interface Observed<T> {
  readonly label: string;
  readonly code: number;
  readonly value: T;
}

interface NscqLibrary {
  /** The return code: 0, above it a warning, below it an error. */
  create(): Promise<number>;
  destroy(): Promise<void>;
  setInput(bytes: Buffer): Promise<number>;
  observe<K extends NscqKind>(
    kind: K,
    path: string,
  ): Promise<{ readonly code: number; readonly values: readonly Observed<NscqValues[K]>[] }>;
}

/** The bytes of a structure that a callback gets by value; empty where the size is impossible. */
const sized = (bytes: Uint8Array, size: number) => Buffer.from(bytes.subarray(0, size > bytes.length ? 0 : size));

/**
 * @param path as dlopen takes it.
 * @param max_calls limit of concurrent calls, shared with NVML.
 * @throws {AttesterError} without koffi or without the library.
 */
export function openNscq(path: string, max_calls: number): NscqLibrary {
  const koffi = loadKoffi();
  const { uuid: UUID, session: SESSION, ...callbacks } = nscqTypes(koffi);
  const library = loaded(koffi, path);
  const create = library.func('nscq_session_create', SESSION, ['uint32']);
  const destroy = library.func('nscq_session_destroy', 'void', ['uintptr_t']);
  const setInput = library.func('nscq_session_set_input', 'int8', ['uintptr_t', 'uint32', 'void *', 'uint32']);
  const label = library.func('nscq_uuid_to_label', 'int8', ['void *', 'void *', 'uint32']);
  const observers = {
    uuid: observer(library, koffi, callbacks.onUuid),
    byte: observer(library, koffi, callbacks.onByte),
    chain: observer(library, koffi, callbacks.onChain),
    report: observer(library, koffi, callbacks.onReport),
  };
  let session: number | bigint = 0;

  const uuidAt = (address: unknown) => Buffer.from(koffi.decode(address, UUID) as Uint8Array);

  async function labelOf(uuid: Buffer): Promise<string> {
    const text = Buffer.alloc(LABEL_BYTES);
    await callAsync(label, [uuid, text, 0], max_calls);
    return readText(text);
  }

  function readValue(kind: NscqKind, value: unknown): Buffer | number {
    if (kind === 'uuid') return uuidAt(value);
    if (kind === 'byte') return value as number;
    if (kind === 'chain') return sized((value as Chain).cert_chain, (value as Chain).cert_chain_size);
    return sized((value as Report).report, (value as Report).report_size);
  }

  return {
    async create() {
      const created = await callAsync<{ rc: number; session: number | bigint }>(create, [MOUNT_DEVICES], max_calls);
      session = created.session;
      return created.rc;
    },
    async destroy() {
      if (BigInt(session) === 0n) return;
      const ended = session;
      session = 0;
      await callAsync(destroy, [ended], max_calls);
    },
    setInput: (bytes) => callAsync<number>(setInput, [session, 0, bytes, bytes.length], max_calls),
    async observe<K extends NscqKind>(kind: K, at: string) {
      const received: { uuid: Buffer; code: number; value: Buffer | number }[] = [];
      // An error thrown here would be lost, so the callback only keeps its arguments.
      const keep = (device: unknown, code: number, value: unknown) => {
        received.push({ uuid: uuidAt(device), code, value: readValue(kind, value) });
      };
      const code = await callAsync<number>(observers[kind], [session, at, keep, null, 0], max_calls);
      const values: Observed<NscqValues[K]>[] = [];
      for (const { uuid, code, value } of received) {
        const read = kind === 'uuid' ? await labelOf(value as Buffer) : value;
        values.push({ label: await labelOf(uuid), code, value: read as NscqValues[K] });
      }
      return { code, values };
    },
  };
}

const observer = (library: KoffiLibrary, koffi: Koffi, callback: unknown) =>
  library.func('nscq_session_path_observe', 'int8', ['uintptr_t', 'str', koffi.pointer(callback), 'void *', 'uint32']);

function loaded(koffi: Koffi, path: string): KoffiLibrary {
  try {
    return koffi.load(path);
  } catch (cause) {
    const words = `protected PCIe is on and ${path} cannot be loaded; install libnvidia-nscq of the driver's branch`;
    throw refusal('no_nscq', words, 'stop', { cause });
  }
}

/** One call at a time: a session holds the nonce for its next report. Every method throws {AttesterError}. */
export interface Nscq {
  open(): Promise<void>;
  close(): Promise<void>;
  /** Labels, in the driver's order. */
  switches(): Promise<readonly string[]>;
  /** nscq_arch_t: 2 LS10. */
  architecture(label: string): Promise<number>;
  /** Trusted NVLink is on, and locked until the switch is reset. */
  locked(label: string): Promise<boolean>;
  /** PEM, leaf first. */
  attestationChain(label: string): Promise<string>;
  report(label: string, nonce: Uint8Array): Promise<Uint8Array>;
}

const UUIDS = '/drv/nvswitch/{device}/uuid';
/** nscq_tnvl_status_t, bit by bit as NVIDIA's verifier reads it. */
const TNVL = 1;
const LOCKED = 2;

export function createNscq(library: NscqLibrary): Nscq {
  const checked = (path: string, code: number) => {
    if (code < 0) throw new NscqError(path, code);
  };

  async function observed<K extends NscqKind>(kind: K, path: string): Promise<readonly Observed<NscqValues[K]>[]> {
    const { code, values } = await library.observe(kind, path);
    checked(path, code);
    for (const value of values) checked(path, value.code);
    return values;
  }

  async function only<K extends NscqKind>(kind: K, label: string, property: string): Promise<NscqValues[K]> {
    const path = `/${label}/${property}`;
    const [first, ...others] = await observed(kind, path);
    if (first === undefined || first.label !== label || others.length > 0)
      throw refusal('nscq_error', `${path} was not answered by only that switch`);
    return first.value;
  }

  async function bytes(kind: 'chain' | 'report', label: string, property: string): Promise<Uint8Array> {
    const value = await only(kind, label, property);
    if (value.length === 0) throw refusal('nscq_error', `${property} of ${label} has a size that cannot be`);
    return value;
  }

  return {
    async open() {
      checked('nscq_session_create', await library.create());
    },
    close: () => library.destroy(),
    switches: async () => (await observed('uuid', UUIDS)).map(({ value }) => value),
    architecture: (label) => only('byte', label, 'id/arch'),
    async locked(label) {
      const status = await only('byte', label, 'config/pcie_mode');
      return status > 0 && (status & TNVL) !== 0 && (status & LOCKED) !== 0;
    },
    attestationChain: async (label) => readText(Buffer.from(await bytes('chain', label, 'config/certificate'))),
    async report(label, nonce) {
      if (nonce.length !== NONCE_BYTES) throw new RangeError(`a nonce has ${NONCE_BYTES} bytes`);
      checked('nscq_session_set_input', await library.setInput(Buffer.from(nonce)));
      return bytes('report', label, 'config/attestation_report');
    },
  };
}

// A session with NSCQ: opens and checks the switches, which are attested with the GPUs behind protected PCIe.

interface NvSwitch extends Device {
  readonly label: string;
}

const LS10 = 2;
const MAX_SWITCHES = 16;

/** @throws {AttesterError} no switch, one that cannot attest, or one that is not locked. */
export async function openSwitches(nscq: Nscq): Promise<readonly NvSwitch[]> {
  await nscq.open();
  try {
    return await findSwitches(nscq);
  } catch (error) {
    await nscq.close().catch(() => undefined);
    throw error;
  }
}

async function findSwitches(nscq: Nscq): Promise<readonly NvSwitch[]> {
  const labels = await nscq.switches();
  if (labels.length === 0) throw refusal('no_switch', 'protected PCIe is on, and the driver sees no switch');
  if (labels.length > MAX_SWITCHES)
    throw refusal('no_switch', `${labels.length} switches, and ${MAX_SWITCHES} is the most we know`);
  for (const [index, label] of labels.entries()) {
    const architecture = await nscq.architecture(label);
    if (architecture !== LS10)
      throw refusal('unsupported_switch', `switch ${index} (architecture ${architecture}) cannot attest; LS10 can`);
  }
  await checkLocked(nscq, labels);
  return labels.map((label) => ({ arch: 'LS10', model: 'NVSwitch LS10', label }));
}

/** @throws {AttesterError} switch_unlocked: its host could still reroute the traffic between the GPUs. */
export async function checkLocked(nscq: Nscq, labels: readonly string[]): Promise<void> {
  for (const [index, label] of labels.entries())
    if (!(await nscq.locked(label)))
      throw refusal('switch_unlocked', `switch ${index} is not locked in trusted NVLink mode; restart the machine`);
}

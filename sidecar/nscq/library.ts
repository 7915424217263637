// Opens NVIDIA's library for NVSwitches (libnvidia-nscq.so.2, API 2.0.0). It answers by callbacks, before the call returns.
//
// The call runs on a thread of libuv's pool; koffi hands each callback to the event loop and holds that thread meanwhile, so
// nothing here waits for a switch.
import { refusal } from '../nvml/failure.ts';
import { callAsync, type Koffi, type KoffiLibrary, loadKoffi } from '../nvml/ffi.ts';
import { type Chain, nscqTypes, type Report } from './types.ts';

export const NSCQ_LIBRARY = 'libnvidia-nscq.so.2';
const MOUNT_DEVICES = 1;
const LABEL_BYTES = 64;

/** What a path's answers are. */
export interface NscqValues {
  uuid: string;
  byte: number;
  chain: Uint8Array;
  report: Uint8Array;
}
export type NscqKind = keyof NscqValues;

/** One answer to a path: from which switch, with which return code, below zero for an error. */
export interface Observed<T> {
  readonly label: string;
  readonly code: number;
  readonly value: T;
}

export interface NscqLibrary {
  /** 0 or a warning above it; below: an error. */
  create(): Promise<number>;
  destroy(): Promise<void>;
  setInput(bytes: Buffer): Promise<number>;
  observe<K extends NscqKind>(
    kind: K,
    path: string,
  ): Promise<{ readonly code: number; readonly answers: readonly Observed<NscqValues[K]>[] }>;
}

/** What a callback is given as its third argument, by value, and what to make of it. A size that cannot be is no bytes. */
const sized = (bytes: Uint8Array, size: number) => Buffer.from(bytes.subarray(0, size > bytes.length ? 0 : size));

/**
 * @param path as dlopen takes it.
 * @param max_calls as of NVML's, with which it shares the threads.
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
    const end = text.indexOf(0);
    return text.toString('latin1', 0, end < 0 ? text.length : end);
  }

  function readValue(kind: NscqKind, given: unknown): Buffer | number {
    if (kind === 'uuid') return uuidAt(given);
    if (kind === 'byte') return given as number;
    if (kind === 'chain') return sized((given as Chain).cert_chain, (given as Chain).cert_chain_size);
    return sized((given as Report).report, (given as Report).report_size);
  }

  return {
    async create() {
      const made = await callAsync<{ rc: number; session: number | bigint }>(create, [MOUNT_DEVICES], max_calls);
      session = made.session;
      return made.rc;
    },
    async destroy() {
      if (BigInt(session) === 0n) return;
      const ended = session;
      session = 0;
      await callAsync(destroy, [ended], max_calls);
    },
    setInput: (bytes) => callAsync<number>(setInput, [session, 0, bytes, bytes.length], max_calls),
    async observe<K extends NscqKind>(kind: K, at: string) {
      const given: { uuid: Buffer; code: number; value: Buffer | number }[] = [];
      // What it throws nobody would hear: it only keeps what was given.
      const keep = (device: unknown, code: number, value: unknown) => {
        given.push({ uuid: uuidAt(device), code, value: readValue(kind, value) });
      };
      const code = await callAsync<number>(observers[kind], [session, at, keep, null, 0], max_calls);
      const answers: Observed<NscqValues[K]>[] = [];
      for (const { uuid, code, value } of given) {
        const read = kind === 'uuid' ? await labelOf(value as Buffer) : value;
        answers.push({ label: await labelOf(uuid), code, value: read as NscqValues[K] });
      }
      return { code, answers };
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

// Calls a driver's library through koffi. Each call runs on a thread of libuv's pool, few at a time; a call that hangs keeps its thread.
import { createRequire } from 'node:module';
import { refusal } from './errors.ts';

/** The part of koffi that is used here. It is loaded only when a driver's library is opened. */
export interface Koffi {
  load(path: string): KoffiLibrary;
  config(settings: Readonly<Record<string, number>>): unknown;
  struct(members: Readonly<Record<string, unknown>>): unknown;
  array(type: string, length: number): unknown;
  pointer(type: unknown): unknown;
  proto(name: string, result: string, parameters: readonly unknown[]): unknown;
  decode(address: unknown, type: unknown): unknown;
}
export interface KoffiLibrary {
  func(name: string, result: unknown, parameters: readonly unknown[]): KoffiFunction;
}
export interface KoffiFunction {
  async(...args: readonly unknown[]): void;
}

/** The drivers keep their structures on the stack, and koffi's own default is small. */
const STACK_BYTES = 1024 * 1024;

let koffi: Koffi | undefined;

/** @throws {AttesterError} no_ffi */
export function loadKoffi(): Koffi {
  if (koffi !== undefined) return koffi;
  try {
    const loaded = createRequire(import.meta.url)('koffi') as Koffi;
    loaded.config({ async_stack_size: STACK_BYTES });
    process.once('exit', endAnyway);
    koffi = loaded;
    return loaded;
  } catch (cause) {
    const words = 'the npm package koffi is not there or not for this platform; run npm ci';
    throw refusal('no_ffi', words, 'stop', { cause });
  }
}

/** The arguments of running calls: the memory that a call writes to must live until the call returns. */
const in_flight = new Set<readonly unknown[]>();

/** Node waits for its threads before it ends, and would wait without end for one that hangs in the driver. */
function endAnyway(): void {
  if (in_flight.size > 0) process.kill(process.pid, 'SIGKILL');
}

/**
 * @param max_calls limit of concurrent calls in this process: each takes a thread, and one that hangs keeps it.
 * @throws {AttesterError} nvml_timeout when `max_calls` calls have not returned.
 */
export function callAsync<T>(run: KoffiFunction, args: readonly unknown[], max_calls: number): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    if (in_flight.size >= max_calls)
      throw refusal('nvml_timeout', 'earlier calls hang in the driver; look at dmesg', 'retry');
    run.async(...args, (error: Error | null, result: T) => {
      in_flight.delete(args);
      if (error === null) resolve(result);
      else reject(error);
    });
    in_flight.add(args);
  });
}

export const NONCE_BYTES = 0x20;

/** ASCII up to the first zero byte. */
export function readText(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end < 0 ? bytes.length : end);
}

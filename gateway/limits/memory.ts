// Computes from the settings how much memory and how many descriptors the gateway may need, and checks that they fit.
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import type { Logger } from 'pino';
import { ConfigError, type GatewayConfig } from '../base/config.ts';
import {
  CHECKING_HEAP_MB,
  CHECKING_YOUNG_HEAP_MB,
  MAX_UNOPENED_BYTES,
  MAX_UNSERVED_BYTES,
  OFFLOAD_HEAP_MB,
  OFFLOAD_YOUNG_HEAP_MB,
  type VerifierSizes,
  verifierBounds,
} from '../base/memory-bounds.ts';

const KiB = 1024;
const MiB = 1024 * KiB;

/** Code, stacks, and V8's memory outside its heaps. Measured: a process that has just started takes 150 MiB, 40 of them its heap. */
const PROCESS_BYTES = 112 * MiB;
const THREAD_BYTES = 16 * MiB;
/** An idle connection: its socket, and the last head that it sent. */
const CONNECTION_BYTES = 8 * KiB;
/** The bytes that are buffered for a slow client before the gateway stops reading from the backend. */
const STREAM_BYTES = 64 * KiB;
/** These factors cover strings beside their bytes, and the overhead of allocators. */
const HELD_COPIES = 1.25;
const STORE_COPIES = 1.1;
const UNSERVED_COPIES = 2;

type MemorySettings = Pick<
  GatewayConfig,
  | 'max_body_bytes'
  | 'max_answer_bytes'
  | 'max_held_bytes'
  | 'max_connections'
  | 'max_streams'
  | 'attestation_store_bytes'
> &
  VerifierSizes;

/** A part of the memory that is needed, and the setting that changes it; null: there is none. */
interface Part {
  readonly name: string;
  readonly bytes: number;
  readonly setting: string | null;
}

/** Returns the worst case. `heap_bytes`: V8's heap limit. */
export function memoryNeeded(settings: MemorySettings, heap_bytes = getHeapStatistics().heap_size_limit): Part[] {
  const verifier = verifierBounds(settings);
  const slowThread = verifier.slow_heap_mb * MiB + THREAD_BYTES;
  const quickThread = verifier.quick_heap_mb * MiB + THREAD_BYTES;
  const parts: [string, number, string | null][] = [
    ['process', PROCESS_BYTES + heap_bytes, null],
    ['reading large bodies', (OFFLOAD_HEAP_MB + OFFLOAD_YOUNG_HEAP_MB) * MiB + THREAD_BYTES, null],
    ['checking the sidecar', (CHECKING_HEAP_MB + CHECKING_YOUNG_HEAP_MB) * MiB + THREAD_BYTES, null],
    ['verifications', quickThread + slowThread + verifier.quick_bytes + verifier.slow_bytes, null],
    ['unserved requests', UNSERVED_COPIES * MAX_UNSERVED_BYTES, null],
    ['sealed requests not opened', MAX_UNOPENED_BYTES, null],
    ['bodies and answers', HELD_COPIES * settings.max_held_bytes, 'MAX_HELD_BYTES'],
    ['kept attestations', STORE_COPIES * settings.attestation_store_bytes, 'ATTESTATION_STORE_BYTES'],
    ['connections', settings.max_connections * CONNECTION_BYTES, 'MAX_CONCURRENT_REQUESTS'],
    ['streams', settings.max_streams * STREAM_BYTES, 'MAX_CONCURRENT_REQUESTS'],
  ];
  return parts.map(([name, bytes, setting]) => ({ name, bytes, setting }));
}

const totalBytes = (parts: readonly Part[]): number => parts.reduce((sum, { bytes }) => sum + bytes, 0);

const mib = (bytes: number) => Math.ceil(bytes / MiB);

/** The memory limit of this process's cgroup; null where it is not below the machine's memory. */
function memoryLimit(): number | null {
  const limit = process.constrainedMemory();
  return limit > 0 && limit < totalmem() ? limit : null;
}

/** Logs the memory that may be needed. @throws {ConfigError} where the limit is lower. */
export function checkMemory(settings: MemorySettings, log: Logger, limit_bytes = memoryLimit()): void {
  const parts = memoryNeeded(settings);
  const needed_mib = mib(totalBytes(parts));
  const limit_mib = limit_bytes === null ? null : Math.floor(limit_bytes / MiB);
  const parts_mib = Object.fromEntries(parts.map(({ name, bytes }) => [name, mib(bytes)]));
  log.info({ needed_mib, limit_mib, parts_mib }, 'memory');
  if (limit_mib === null || needed_mib <= limit_mib) return;
  const most = parts.toSorted((a, b) => b.bytes - a.bytes);
  const list = most
    .map(({ name, bytes, setting }) => `${name} ${mib(bytes)}${setting === null ? '' : ` (${setting})`}`)
    .join(', ');
  throw new ConfigError(
    `the container may have ${limit_mib} MiB of memory, and with these settings the gateway may need ${needed_mib}: ` +
      `give it more, or lower the settings. In MiB: ${list}`,
  );
}

/** Descriptors for files, the sidecar, the log, and listeners. */
const OTHER_DESCRIPTORS = 64;

/** How many files and connections this process may have open; null: no limit. */
function descriptorLimit(): number | null {
  const { userLimits } = process.report.getReport() as { userLimits?: { open_files?: { soft: string | number } } };
  const soft = Number(userLimits?.open_files?.soft);
  return Number.isInteger(soft) ? soft : null;
}

/**
 * Returns how many client connections this process takes: twice MAX_CONCURRENT_REQUESTS, or fewer where no descriptors would be left
 * for the backend. A running request needs one of those.
 */
export function connectionsWithin(
  { max_connections: wanted, max_concurrent_requests }: GatewayConfig,
  log: Logger,
  limit = descriptorLimit(),
): number {
  if (limit === null) return wanted;
  const backend = Math.min(max_concurrent_requests, wanted);
  const rest = Math.max(2, limit - OTHER_DESCRIPTORS);
  const connections = Math.min(wanted, rest - Math.min(backend, Math.floor(rest / 2)));
  if (connections < wanted)
    log.warn(
      { descriptors: limit, connections, wanted },
      `fewer connections than twice MAX_CONCURRENT_REQUESTS: raise the limit of open files (ulimit -n) to ${wanted + backend + OTHER_DESCRIPTORS}`,
    );
  return connections;
}

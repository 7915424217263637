// The machine as the doctor sees it. All access goes through here, so that a test can stand in for any machine.

import { hash } from 'node:crypto';
import { constants } from 'node:fs';
import { access, lstat, readdir, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import { type ConnectionEnd, connectToSidecar, readTextFrame, updateBoth } from '../../node/sidecar-connection.ts';
import { MAX_DEVICES } from '../../proto/attestation/attestation.ts';
import { type Attested, type Hello, MAX_FRAME_BYTES, type SessionFrame } from '../../proto/attestation/frames.ts';
import type { SidecarConfig } from '../common/config.ts';
import { fetchThrough } from '../common/http.ts';
import { withDeadline } from '../common/lock.ts';
import { RunError, runProgram, withTemporaryFolder } from '../common/program.ts';
import { NVML, NvmlError } from '../driver/errors.ts';
import { ARCHITECTURES, type ConfidentialMode, createNvml, openLibrary } from '../driver/nvml.ts';
import { DRIVER_VERSION_FILE, driverVersionIn } from '../driver/versions.ts';

// Requests one attestation of a running sidecar over its socket, as a gateway would.

/** One attestation, or its failure. */
export interface Trial {
  readonly hello: Hello;
  readonly raw: string;
  /** The attestation, or the sidecar's reason why there is none. */
  readonly result: Attested | { readonly failure: string };
  /** The session whose key signed the attestation; null where no processor signs. */
  readonly session: SessionFrame | null;
}

const HELLO_MS = 5_000;
const ATTESTATION_MS = 60_000;
const ID = 'doctor';

/** Drafts raw. @param session the session that it names; undefined: none. */
export type DraftRaw = (session: string | undefined) => string;

/** @throws {Error} nobody listens there (`code` ENOENT, ECONNREFUSED, EACCES), or the listener is not a sidecar. */
export function trialAttestation(sidecar_socket: string, draft: DraftRaw): Promise<Trial> {
  let timer: NodeJS.Timeout | undefined;
  const { promise, resolve, reject } = Promise.withResolvers<Trial>();
  let hello: Hello | null = null;
  let session: SessionFrame | null = null;
  let raw = draft(undefined);
  const connection = connectToSidecar({
    createConnection: () => connect(sidecar_socket),
    max_frame_bytes: MAX_FRAME_BYTES,
    hello_timeout_ms: HELLO_MS,
    read: readTextFrame,
    onHello(greeting, again) {
      hello = greeting;
      if (again) return;
      connection.send(JSON.stringify({ type: 'attest', id: ID, raw }));
      timer = setTimeout(() => reject(new Error(`no attestation within ${ATTESTATION_MS} ms`)), ATTESTATION_MS);
    },
    onFrame(frame) {
      if (hello === null) return;
      if (frame.type === 'session') session = frame;
      if (frame.type === 'attested') resolve({ hello, raw, result: frame, session });
      if (frame.type !== 'failed') return;
      const inSession = session === null ? raw : draft(hash('sha256', session.statement));
      if (frame.code !== 'session_changed' || raw === inSession)
        return resolve({ hello, raw, result: { failure: `${frame.code}: ${frame.message}` }, session });
      raw = inSession;
      connection.send(JSON.stringify({ type: 'attest', id: ID, raw }));
    },
    onEnd(end) {
      if (end.reason === 'error') return reject(end.error);
      reject(new Error(end.reason === 'other_protocol' ? updateBoth(end.protocol) : ENDS[end.reason]));
    },
  });
  return promise.finally(() => {
    clearTimeout(timer);
    connection.end();
  });
}

const ENDS: Readonly<Record<Exclude<ConnectionEnd['reason'], 'error' | 'other_protocol'>, string>> = {
  closed: 'it hung up',
  no_hello_in_time: `no hello within ${HELLO_MS} ms`,
  silent: 'it is silent',
  invalid_frame: 'what listens there does not speak our protocol',
  hello_not_first: 'it did not say hello first',
  ended: 'the doctor hung up',
};

// The machine's facts from NVML, through the native attester's binding to it.

interface NvmlFacts {
  readonly driver: string;
  readonly gpus: readonly { readonly model: string; readonly arch: string | null }[];
  /** null: this driver or GPU knows no confidential computing. */
  readonly mode: ConfidentialMode | null;
  /** null: this driver does not report it. */
  readonly ready: boolean | null;
  /** Whether every GPU's driver state is kept while nobody uses the GPU; null: this driver does not report it. */
  readonly persistence: boolean | null;
}

const DEADLINE_MS = 5_000;

/** @throws {Error} without koffi, without the library, without a driver, or when a call hangs. */
const readNvml = (library: string): Promise<NvmlFacts> =>
  withDeadline(readFacts(library), DEADLINE_MS, () => new Error(`NVML did not answer within ${DEADLINE_MS} ms`));

async function readFacts(library: string): Promise<NvmlFacts> {
  const nvml = createNvml(openLibrary(library, 1));
  await nvml.init();
  try {
    const count = Math.min(await nvml.count(), MAX_DEVICES);
    const gpus: NvmlFacts['gpus'][number][] = [];
    const persistence: (boolean | null)[] = [];
    for (let index = 0; index < count; index++) {
      const handle = await nvml.handle(index);
      const arch = ARCHITECTURES[await nvml.architecture(handle)] ?? null;
      gpus.push({ model: await nvml.name(handle), arch });
      persistence.push(await nvml.persistence(handle).catch(() => null));
    }
    const mode = await nvml.mode().catch((error: unknown) => {
      if (isUnsupported(error)) return null;
      throw error;
    });
    const ready = await nvml.ready().catch(() => null);
    return { driver: await nvml.driverVersion(), gpus, mode, ready, persistence: allTrue(persistence) };
  } finally {
    await nvml.shutdown().catch(() => undefined);
  }
}

/** Whether all are true; null without a GPU, or where one is unknown. */
const allTrue = (known: readonly (boolean | null)[]): boolean | null =>
  known.length === 0 || known.includes(null) ? null : !known.includes(false);

const isUnsupported = (error: unknown) =>
  error instanceof NvmlError && (error.nvml_code === NVML.not_supported || error.nvml_code === NVML.function_not_found);

type Access = 'read_write' | 'read' | 'write' | 'write_file' | 'execute';

interface Ran {
  readonly exit_code: number | null;
  readonly stdout: string;
}

export interface Host {
  readonly user: string;
  now(): Date;
  /** null: the file is missing or not readable. */
  readText(path: string): Promise<string | null>;
  /** File names; empty where the folder is missing. */
  list(folder: string): Promise<readonly string[]>;
  kind(path: string): Promise<'folder' | 'socket' | 'device' | 'file' | null>;
  /** null: it is allowed; otherwise the reason: 'EACCES', 'ENOENT', 'EPERM'. */
  access(path: string, wanted: Access): Promise<string | null>;
  /** null: there is no such program, or it did not end in time. */
  run(program: string, args: readonly string[]): Promise<Ran | null>;
  fetch: typeof globalThis.fetch;
  /** Without a proxy, for services on this machine. */
  fetchNear: typeof globalThis.fetch;
  /** @throws {Error} with the reason why NVML cannot be used. */
  nvml(library: string): Promise<NvmlFacts>;
  /** @throws {Error} with the system's `code` where nobody listens. */
  trialAttestation(sidecar_socket: string, draft: DraftRaw): Promise<Trial>;
}

const RUN_DEADLINE_MS = 10_000;
const MAX_OUTPUT_BYTES = 256 * 1024;
const MODES: Readonly<Record<Access, number>> = {
  read_write: constants.R_OK | constants.W_OK,
  read: constants.R_OK,
  /** For a folder. */
  write: constants.W_OK | constants.X_OK,
  write_file: constants.W_OK,
  execute: constants.X_OK,
};

/** @param environment that of the programs that are run. */
export function thisHost(environment: Readonly<Record<string, string>>): Host {
  return {
    user: userInfo().username,
    now: () => new Date(),
    readText: (path) => readFile(path, 'utf8').catch(() => null),
    list: (folder) => readdir(folder).catch(() => []),
    async kind(path) {
      const stat = await lstat(path).catch(() => null);
      if (stat === null) return null;
      if (stat.isDirectory()) return 'folder';
      if (stat.isSocket()) return 'socket';
      return stat.isCharacterDevice() ? 'device' : 'file';
    },
    access: (path, wanted) =>
      access(path, MODES[wanted]).then(
        () => null,
        (error: NodeJS.ErrnoException) => error.code ?? 'unknown',
      ),
    run: (program, args) => runHere(program, args, environment),
    fetch: fetchThrough(environment),
    fetchNear: globalThis.fetch,
    nvml: readNvml,
    trialAttestation,
  };
}

async function runHere(program: string, args: readonly string[], env: Readonly<Record<string, string>>) {
  const limits = { deadline_ms: RUN_DEADLINE_MS, max_output_bytes: MAX_OUTPUT_BYTES };
  try {
    return await withTemporaryFolder('countersign-doctor-', (cwd) =>
      runProgram(program, args, { cwd, env: { ...env, HOME: cwd, TMPDIR: cwd }, ...limits }),
    );
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}

// The facts about driver and GPUs, from the best source available: NVML, else nvidia-smi, else /proc.

export interface Facts {
  readonly source: 'NVML' | 'nvidia-smi' | '/proc' | null;
  readonly driver: string | null;
  readonly gpus: NvmlFacts['gpus'];
  readonly mode: ConfidentialMode | null;
  readonly ready: boolean | null;
  readonly persistence: boolean | null;
  /** The reason why NVML could not be used; null where it was. */
  readonly nvml_error: string | null;
}

export async function gatherFacts(host: Host, config: SidecarConfig): Promise<Facts> {
  const nvml = await host.nvml(config.nvml_library).catch((error: unknown) => messageOf(error));
  if (typeof nvml !== 'string') return { ...nvml, source: 'NVML', nvml_error: null };
  const smi = await readSmi(host);
  if (smi !== null) return { ...smi, source: 'nvidia-smi', nvml_error: nvml };
  const text = await host.readText(DRIVER_VERSION_FILE);
  const driver = text === null ? null : driverVersionIn(text);
  const unknown = { gpus: [], mode: null, ready: null, persistence: null };
  return { source: driver === null ? null : '/proc', driver, ...unknown, nvml_error: nvml };
}

export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error)).slice(0, 300);

/** Why there is no response: fetch has the reason in `cause`. */
export const reasonOf = (error: unknown) =>
  messageOf(error instanceof Error && error.cause !== undefined ? error.cause : error);

async function readSmi(host: Host): Promise<NvmlFacts | null> {
  const list = await host.run('nvidia-smi', [
    '--query-gpu=driver_version,persistence_mode,name',
    '--format=csv,noheader',
  ]);
  if (list === null || list.exit_code !== 0) return null;
  const rows = list.stdout.split('\n').flatMap((line) => {
    const [, driver, mode, model] = /^\s*([0-9.]+)\s*,\s*([^,]+?)\s*,\s*(.+?)\s*$/.exec(line) ?? [];
    if (driver === undefined || mode === undefined || model === undefined) return [];
    return [{ driver, model, persistence: mode === 'Enabled' ? true : mode === 'Disabled' ? false : null }];
  });
  const driver = rows[0]?.driver;
  if (driver === undefined) return null;
  const state = await host.run('nvidia-smi', ['conf-compute', '-q']);
  return {
    driver,
    gpus: rows.map(({ model }) => ({ model, arch: archOf(model) })),
    persistence: allTrue(rows.map(({ persistence }) => persistence)),
    ...readState(state !== null && state.exit_code === 0 ? state.stdout : ''),
  };
}

/** nvidia-smi names models, not architectures. */
function archOf(model: string): string | null {
  if (/\b(GH?[12]00|H100|H200|H20|H800)\b/.test(model)) return 'HOPPER';
  return /\b(G?B[123]00|RTX PRO [0-9]+ Blackwell)\b/i.test(model) ? 'BLACKWELL' : null;
}

/**
 * `nvidia-smi conf-compute -q`, as drivers 550 to 595 print it: `CC State : ON`, `Multi-GPU Mode : None | Protected PCIe |
 * NVLE`, `CC GPUs Ready State : Ready | Not Ready`, `DevTools Mode : OFF`. Drivers before 550 leave some of them out.
 */
function readState(text: string): { mode: ConfidentialMode | null; ready: boolean | null } {
  const value = (label: string) => new RegExp(`^\\s*${label}\\s*:\\s*(.+?)\\s*$`, 'mi').exec(text)?.[1]?.toLowerCase();
  const confidential = value('CC State');
  if (confidential === undefined) return { mode: null, ready: null };
  const multi = value('Multi-GPU Mode');
  const ready = value('CC GPUs Ready State');
  const mode: ConfidentialMode = {
    // nvidia-smi does not print it: whether NVML calls it "production" cannot be seen here.
    environment: 'production',
    confidential: confidential === 'on',
    devtools: (value('DevTools Mode') ?? 'off') !== 'off',
    multi_gpu:
      multi === undefined ? null : multi.includes('pcie') ? 'protected_pcie' : multi === 'nvle' ? 'nvle' : 'none',
  };
  return { mode, ready: ready === undefined ? null : ready === 'ready' };
}

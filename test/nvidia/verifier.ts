// NVIDIA's Python verifier, driven: each call its own process, with its clock set by faketime and our local services.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Services } from './services.ts';

export interface Tools {
  /** Of the venv that NVIDIA's packages are in. */
  readonly python: string;
  readonly faketime: string;
}

export interface Appraisal {
  readonly arch: 'HOPPER' | 'BLACKWELL';
  readonly report: Buffer;
  /** PEM, leaf first. */
  readonly chain: string;
  readonly nonce: string;
  readonly rounds?: number;
  /** Further devices that signed the same nonce. */
  readonly others?: readonly Pick<Appraisal, 'arch' | 'report' | 'chain'>[];
}

/** What appraise.py prints. A member is null where the verifier did not come so far. */
export interface Verdict {
  readonly valid: boolean;
  /** What NVIDIA's example policy says of the token about the last round. */
  readonly policy: boolean;
  readonly chain: boolean | null;
  readonly signature: boolean | null;
  readonly measurements: 'success' | 'fail' | null;
  /** Its warnings and errors. */
  readonly said: readonly string[];
  /** One for each round, without the start of the process. */
  readonly seconds: readonly number[];
  readonly processor_seconds: readonly number[];
}

export interface DocumentVerdict {
  readonly valid: boolean;
  readonly said: string;
}

/** What had to be set aside for it to run on stored evidence. */
export const RELAXED = [
  'its clock is set by faketime, to one instant for all that it checks: it has no clock to pass in',
  'OCSP nonces are switched off (its own option, ocsp_nonce_disabled): a stored response answers no nonce',
  'OCSP responses whose window has passed are served: it compares neither thisUpdate nor nextUpdate',
  'driver and VBIOS version, which it would ask the driver for, are read from the report itself',
  'asked for the mode of the machine, which it is after a refusal, a stub of NVML says that development tools are off',
] as const;

const TIMEOUT_MS = 60_000;

/** Runs NVIDIA's verifier over a report. `at`: its clock. */
export function nvidiaAppraises(given: Appraisal, at: Date, tools: Tools, services: Services): Promise<Verdict> {
  const inText = <T extends { report: Buffer }>(one: T) => ({ ...one, report: one.report.toString('base64') });
  const input = { ...inText(given), others: (given.others ?? []).map(inText) };
  return python('appraise.py', input, at, tools, services);
}

/** Runs the part of it that reads such documents. Opaque data comes in hex. */
export function nvidiaReads(
  kind: 'rim' | 'opaque' | 'token',
  document: string,
  at: Date,
  tools: Tools,
  services: Services,
): Promise<DocumentVerdict> {
  return python('documents.py', { kind, document }, at, tools, services);
}

async function python<T>(script: string, input: unknown, at: Date, tools: Tools, services: Services): Promise<T> {
  // Its log files go to the working directory.
  const folder = mkdtempSync(join(tmpdir(), 'nvidia-verifier-'));
  try {
    const clock = `@${at.toISOString().replace('T', ' ').slice(0, 19)}`;
    const path = fileURLToPath(new URL(script, import.meta.url));
    const child = spawn(tools.faketime, ['-f', clock, tools.python, path], {
      cwd: folder,
      // No FAKETIME_DONT_FAKE_MONOTONIC: with it threads spin while they wait, and all takes twenty times as long.
      env: { PATH: process.env.PATH, TZ: 'UTC', NV_RIM_URL: services.rimUrl, NV_OCSP_URL: services.ocspUrl },
      // A group of its own: faketime does not pass a signal on to what it runs.
      detached: true,
    });
    const timer = setTimeout(() => process.kill(-(child.pid ?? 0), 'SIGKILL'), TIMEOUT_MS);
    child.stdin.end(JSON.stringify(input));
    const ended = new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    const [out, err, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
    clearTimeout(timer);
    if (code !== 0) throw new Error(`${script} ended with ${code}: ${err.slice(-2000)}`);
    return JSON.parse(out) as T;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function text(stream: NodeJS.ReadableStream): Promise<string> {
  let all = '';
  for await (const chunk of stream) all += String(chunk);
  return all;
}

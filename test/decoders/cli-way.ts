// The way through the CLI: a client saved the stream, the CLI found it valid, and the client reads what it saved.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { splitRaw } from '../../proto/attestation/raw.ts';
import type { VerificationReport } from '../../verify/index.ts';
import { temporaryFolder } from '../support/harness.ts';
import { AT, simulatedRoot } from '../verify/maker.ts';
import type { Way } from './differential.ts';
import { EVENT_STREAM } from './grammar.ts';

const MAIN = fileURLToPath(new URL('../../auditor/main.ts', import.meta.url));

export interface CliWay extends Way {
  close(): void;
}

export function cliWay(): CliWay {
  const folder = temporaryFolder();
  const root = join(folder.path, 'root.pem');
  writeFileSync(root, simulatedRoot);
  let next = 0;
  return {
    name: 'from a saved stream that the CLI finds valid',
    concurrency: 2,
    async carry({ bytes, answer, attestation }) {
      const file = join(folder.path, `stream-${next++}`);
      writeFileSync(file, bytes);
      if (!(await isValid(file, root))) return null;
      const { raw } = JSON.parse(attestation) as { raw: string };
      const proven = splitRaw(raw).stream?.sha256 ?? 'a whole answer';
      const saved = { ...answer, status: 200, type: EVENT_STREAM, broken: null };
      return { answer: saved, proven, endProves: false, framing: null };
    },
    close: () => folder.remove(),
  };
}

/** Whether the CLI says that the events in the file are those that were signed. @throws {Error} for what it should never say. */
async function isValid(file: string, root: string): Promise<boolean> {
  const given = ['verify', file, '--json', '--allow-simulated', root, '--at', AT.toISOString(), '--offline'];
  const without = ['--without-reference-values', '--without-revocation'];
  let stdout: string;
  try {
    ({ stdout } = await promisify(execFile)(process.execPath, [MAIN, ...given, ...without]));
  } catch (error) {
    const { code } = error as { code?: unknown };
    if (code === 1 || code === 2) return false; // invalid, or no file that it can read
    throw error;
  }
  const { valid, checks } = JSON.parse(stdout) as VerificationReport;
  const { status, detail } = checks.find(({ name }) => name === 'expected_exchange') ?? {};
  if (!valid || status !== 'pass' || !detail?.includes('byte for byte')) throw new Error(`exit 0 for ${detail}`);
  return true;
}

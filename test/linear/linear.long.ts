// Everything that reads what others wrote takes one pass: twice the input, at most 2.2 times the operations (counter.ts). Inputs
// are productions of a grammar (grammar.ts, formats-*.ts), readers are listed in readers*.ts; what
// is fuzzed is among them. A file that is neither read through here nor named below is an error.
//
// One reader, or one production of it, is looked at with
//   node --allow-natives-syntax test/linear/child.ts readers 0/1 'proto/stream/fold' 'choices'
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CHILD = fileURLToPath(new URL('child.ts', import.meta.url));
/** As many as the test runner has workers. */
const PARTS = 2;
/** A minute on two cores that nothing else runs on. */
const TIMEOUT_MS = 600_000;
const MIN_PRODUCTIONS = 60;

/** Files that read nothing of any length that a stranger wrote, and why. */
const EXEMPT: Readonly<Record<string, string>> = {
  'gateway/*.ts': "an operator's settings, and what puts the parts together",
  'gateway/attestation/interfaces.ts': 'types, and a list of codes',
  'gateway/attestation/{attest,attest-requests,challenges,check-worker,sessions,sidecar-client}.ts':
    'what a sidecar says, frames.ts, sidecar-link.ts and report-check.ts read',
  'gateway/attestation/{store-memory,store-shared}.ts': 'keep bytes by an id of bounded length',
  'gateway/backend/backend.ts': 'types',
  'gateway/backend/canary.ts': 'an answer of 1 MiB at most to one question of ours',
  'gateway/backend/{backends,backends-file,replica}.ts':
    "an operator's file of 1 MiB at most, whose turn it is, and who is up",
  'gateway/backend/client.ts': 'undici reads; its heads and times are looked at once',
  'gateway/base/{backoff,bounds}.ts': 'they compute numbers',
  'gateway/base/{config,store-url}.ts': "an operator's settings",
  'gateway/base/store-connection.ts': 'the connection to a server that keeps our own values',
  'gateway/http/{context,middleware,sliced-connection,tls}.ts': 'they count requests and hand them on',
  'gateway/http/document.ts': 'our own documents; two headers are looked at once',
  'gateway/http/server.ts': "Node's parser reads, and bounds what it reads; here its headers are looked at once",
  'gateway/keys/{cli,keys-edit}.ts': "an operator's file, which keys-file.ts reads",
  'gateway/routes/keys.ts': "an operator's words of 1 MiB at most",
  'gateway/keys/followed-files.ts': "hands on an operator's files",
  'gateway/limits/{concurrency,memory}.ts':
    "they count, by keys and addresses of bounded length; the machine's own limits",
  'gateway/limits/concurrency.ts': 'counts requests',
  'gateway/limits/shares.ts': 'counts bytes and requests',
  'gateway/threads/{offload,thread,offload-worker}.ts': 'what they hand to a thread, jobs.ts reads',
  'gateway/routes/{attestation,generate,status,verify}.ts': 'what they hand on, others read',
  'gateway/routes/verify.ts': 'hands on what it fetches, 64 KiB of it or what gpu/collateral.ts reads',
  'gateway/routes/page.ts': 'our own document and files',
  'gateway/routes/sealed.ts': 'what it opens, sealed/ reads chunk by chunk',
  'gateway/sealing/*.ts':
    'keys of our own; what is opened, sealed/ reads, and its head of 32 KiB at most is looked at once',
  'gateway/telemetry/*.ts': 'counts and writes',
  'gateway/usage/{accounting,audit-log,book-shared,usage}.ts': 'count by names of bounded length, and write',
  'gateway/usage/audit-cli.ts': "its user's own file, a line at a time",
  'gateway/verifier/{verifier,worker}.ts': 'what they hand to a thread, appraise.ts reads',
  'proto/{log,settings,attestation/attestation,attestation/attestation-schema}.ts':
    "types, zod's patterns over texts of bounded length, an operator's settings, our own errors",
  'sealed/index.ts': 'names of others',
  'verify/cpu/{cpu-options,pinned-roots}.ts': 'types, and roots that stand in the program',
  'proto/attestation/statement.ts': 'reads 16 KiB at most',
  'verify/cpu/reference.ts': "the caller's own list",
  'node/sidecar-connection.ts': 'what a sidecar says, frames.ts and sidecar-link.ts read',
  'verify/cli/*.ts': "its user's words and files; what is in the files, others read",
  'verify/common/version.ts': 'a constant',
  'verify/{index,nvidia,service}.ts': 'types and names of others',
  'verify/policy/options.ts': "the caller's own options",
  'verify/cpu.ts': 'names of others',
  'verify/clients/{ai-sdk,langchain}.ts': 'hand on what fetch.ts verified',
  'verify/clients/{sealed,sealed-error,sealed-session}.ts':
    'a session, which session.ts reads; what is opened, which sealed/ reads; of a refusal 64 KiB of JSON',
};

interface Found {
  /** A reader and a production, with the operations at n, 2n and 4n. */
  readonly steep: readonly string[];
  /** Faults of the test itself: a reader that was called wrongly, or that has no production that it reads. */
  readonly wrong: readonly string[];
  readonly idle: readonly string[];
  /** Those that had a part in it. */
  readonly files: readonly string[];
  readonly counted: number;
  readonly productions: number;
}

async function child<T>(...parameters: readonly string[]): Promise<T> {
  const options = { maxBuffer: 1 << 26, timeout: TIMEOUT_MS };
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--allow-natives-syntax', CHILD, ...parameters],
    options,
  );
  return JSON.parse(stdout) as T;
}

describe('the count', () => {
  it('finds functions that take more than one pass, and lets those by that take one', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const planted = await child<Record<string, { quadratic: boolean; steep: boolean }>>('planted');
    const wrong = Object.entries(planted).filter(([, { quadratic, steep }]) => quadratic !== steep);
    expect(wrong.map(([name]) => name)).toEqual([]);
    const steep = Object.values(planted).filter((one) => one.steep);
    expect(steep.length).toBeGreaterThan(20);
    expect(Object.keys(planted).length - steep.length).toBeGreaterThan(8);
  });
});

describe('readers of what others wrote', () => {
  let found: Found[];
  beforeAll(async () => {
    found = await Promise.all(Array.from({ length: PARTS }, (_, i) => child<Found>('readers', `${i}/${PARTS}`)));
  }, TIMEOUT_MS);

  it('take twice the operations for twice the input', () => {
    const counted = found.reduce((sum, one) => sum + one.counted, 0);
    console.log(`${counted} readers and productions, of ${found[0]?.productions} productions`);
    expect(found[0]?.productions).toBeGreaterThan(MIN_PRODUCTIONS);
    expect(found.flatMap(({ steep }) => steep)).toEqual([]);
  });

  it('are called as they should be, and read what they are given', () => {
    expect(found.flatMap(({ wrong }) => wrong)).toEqual([]);
    expect(found.flatMap(({ idle }) => idle)).toEqual([]);
  });

  it('are all here: each file is read through, or exempt for a reason that still holds', () => {
    const read = new Set(found.flatMap(({ files }) => files));
    const isRead = (file: string) => read.has(join(ROOT, file));
    const exempt = new Set<string>();
    for (const pattern of Object.keys(EXEMPT)) {
      const files = globSync(pattern, { cwd: ROOT });
      expect(files, `${pattern}: there is no such file`).not.toEqual([]);
      for (const file of files) exempt.add(file);
    }
    const all = globSync('{gateway,proto,sealed,verify}/**/*.ts', { cwd: ROOT });
    expect(all.filter((file) => !isRead(file) && !exempt.has(file))).toEqual([]);
  });
});

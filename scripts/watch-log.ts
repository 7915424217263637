// `npm run make watch-log -- STATE BUNDLES…`: reads Sigstore's log of certificates from where STATE left off, and fails on one of our release
// workflows whose run made none of BUNDLES. Every signature of a workflow needs a certificate, and no client takes one that is not in that log.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type Certificate, parseCertificate } from '../verify/x509/certificate.ts';
import { readOne, TAG } from '../verify/x509/der.ts';

const USAGE = `npm run make watch-log -- STATE BUNDLES… --repository OWNER/REPO [--log URL]

STATE    a file: how much of the log was read; made where it does not exist, at the log's end
BUNDLES  Sigstore bundles that were released

exit status: 0 nothing strange, 1 a certificate that no release made, 2 usage, 3 the log does not answer`;

const LOG = 'https://ctfe.sigstore.dev/2022';
const TIMEOUT_MS = 60_000;
const BATCH = 1000;
const RUN = '1.3.6.1.4.1.57264.1.21';
const WORKFLOW = '1.3.6.1.4.1.57264.1.18';

/** The text of one of Fulcio's extensions; empty where it is not there. */
function textOf({ extensions }: Certificate, id: string): string {
  const extension = extensions.get(id);
  return extension === undefined ? '' : new TextDecoder().decode(readOne(extension.value, TAG.utf8String).content);
}

/** The runs that made these bundles. */
export function runsOf(bundles: readonly string[]): Set<string> {
  const runs = bundles.map((text) => {
    const { verificationMaterial: of } = JSON.parse(text);
    const { rawBytes } = of.certificate ?? of.x509CertificateChain.certificates[0];
    return textOf(parseCertificate(Buffer.from(rawBytes, 'base64')), RUN);
  });
  return new Set(runs.filter((run) => run !== ''));
}

interface Entry {
  readonly leaf_input: string;
  readonly extra_data: string;
}

/** The certificate that was shown to the log (RFC 6962 §4.6): the first of extra_data, after its length. */
function shownIn({ extra_data }: Entry): Uint8Array {
  const bytes = Buffer.from(extra_data, 'base64');
  return new Uint8Array(bytes.subarray(3, 3 + bytes.readUIntBE(0, 3)));
}

/** What is strange about an entry; null: it is none of ours, or a released one. */
export function strangeIn(entry: Entry, repository: string, runs: ReadonlySet<string>): string | null {
  const shown = shownIn(entry);
  const ours = `https://github.com/${repository}/.github/workflows/release`;
  // Most are others': a search of bytes, and no parsing.
  if (!Buffer.from(shown).includes(ours)) return null;
  const certificate = parseCertificate(shown);
  const workflow = textOf(certificate, WORKFLOW);
  if (!/^release(-status)?\.yml@/.test(workflow.slice(ours.length - 'release'.length))) return null;
  const run = textOf(certificate, RUN);
  return runs.has(run) ? null : `${workflow} by ${run || 'no run'} at ${certificate.notBefore.toISOString()}`;
}

async function asked(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return (await response.json()) as Record<string, unknown>;
}

async function main(): Promise<number> {
  const options = { repository: { type: 'string' }, log: { type: 'string', default: LOG } } as const;
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [state, ...bundles] = positionals;
  const { repository, log } = values;
  if (state === undefined || repository === undefined) {
    console.error(USAGE);
    return 2;
  }
  const runs = runsOf(bundles.map((file) => readFileSync(file, 'utf8')));
  const size = Number((await asked(`${log}/ct/v1/get-sth`)).tree_size);
  const from = existsSync(state) ? Number(readFileSync(state, 'utf8')) : size;
  const strange: string[] = [];
  for (let at = from; at < size; ) {
    const end = Math.min(at + BATCH, size) - 1;
    const entries = (await asked(`${log}/ct/v1/get-entries?start=${at}&end=${end}`)).entries as Entry[];
    if (entries.length === 0) throw new Error(`${log}: no entry ${at}`);
    for (const [i, entry] of entries.entries()) {
      const found = strangeIn(entry, repository, runs);
      if (found !== null) strange.push(`${at + i}: ${found}`);
    }
    at += entries.length;
  }
  for (const one of strange) console.error(`no release made entry ${one}`);
  // What was strange is not forgotten: it is read again until somebody looks.
  if (strange.length === 0) writeFileSync(state, `${size}\n`);
  console.log(`${size - from} certificates read, ${strange.length} strange`);
  return strange.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  try {
    process.exitCode = await main();
  } catch (error) {
    console.error(`watch-log: ${(error as Error).message}`);
    process.exitCode = 3;
  }

// What nvattest prints on stdout with `--format json`, read strictly where we rely on it.
import * as z from 'zod';

const result = { result_code: z.int().min(0).max(65_535), result_message: z.string().max(4096).default('') };
const base64 = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/);

/** One device's evidence. Releases differ in what else it holds (version, vbios_version, driver_version): kept for `attest`. */
const printedEvidence = z.looseObject({
  arch: z.string().min(1).max(32),
  nonce: z.string().regex(/^[0-9a-fA-F]{64}$/),
  /** base64: the SPDM request and its signed response. */
  evidence: base64,
  /** base64 of the PEM chain, leaf first. */
  certificate: base64,
});
export type PrintedEvidence = z.infer<typeof printedEvidence>;

export const resultOutput = z.looseObject(result);
/** `nvattest collect-evidence`; without evidences where it failed. */
export const collectOutput = z.looseObject({ ...result, evidences: z.array(printedEvidence).min(1).max(64) });
/** `nvattest attest`; both empty objects where it failed. What is in them is for the token's reader. */
export const attestOutput = z.looseObject({
  ...result,
  claims: z.array(z.unknown()),
  detached_eat: z.array(z.unknown()),
});
/** `nvattest version` */
export const versionOutput = z.looseObject({ nvattest: z.string().min(1).max(64) });

/** The last line that nvattest wrote on stderr, where it logs in colour and ends with a backtrace; '' when it wrote none. */
export function lastWords(stderr: string): string {
  const lines = stderr
    // biome-ignore lint/suspicious/noControlCharactersInRegex: terminal colours begin with one
    .replace(/\x1b\[[0-9;]*m/g, '')
    .split('\n')
    .map((line) => line.replace(/[^\x20-\x7e]+/g, ' ').trim())
    .filter((line) => line !== '');
  return (lines.at(-1) ?? '').slice(0, 300);
}

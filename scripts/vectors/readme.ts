// vectors/README.md: the format in prose, and a table of what is there.
import type { Vector } from './vector.ts';

const PROSE = `# Test vectors

Small JSON files that say what a verifier of Countersign's attestations must answer: for each of its checks at least one
that passes, and some that fail *by that check alone*. They need no GPU and no network: a software twin of an H100 made them
in NVIDIA's own byte formats, under test roots that stand beside them. Nothing here proves anything about hardware.

The attestation's format is in \`docs/attestation.md\`, the checks and codes in \`docs/errors.md\`. Genuine vectors are
NVIDIA's and others' and are not kept here.

## A file

\`\`\`json
{
  "description": "what it shows",
  "check": "report_nonce",
  "attestation": {"raw": "…", "nonce": "…", "token": "…", "evidence": []},
  "options": {"at": "2025-06-01T12:00:00.000Z", "simulated_root_file": "parts/device-root.pem"},
  "expect": {"valid": false, "level": "none", "failed_check": "report_nonce", "code": "report_nonce_mismatch"}
}
\`\`\`

The input is one of four members: \`attestation\` (an object), \`attestation_file\` (the path of one), \`text\` (an exact text,
where writing the JSON anew would lose what is shown), \`evidence\` (bare evidence: a list of \`{arch, certificate, evidence,
nonce}\`). Paths, in members whose names end in \`_file\` or \`_files\`, start in this folder.

| option | what the verifier is given |
|---|---|
| \`at\` | the time of the verification. The network is not to be asked: what is not handed in is not to be had |
| \`simulated_root_file\` | PEM: the root that the caller names as simulated. Left out: none is named |
| \`rim_root_file\` | PEM: the root that signers of reference values are trusted under, in place of NVIDIA's |
| \`rim_files\` | reference values by the id under which a RIM service keeps them |
| \`ocsp_files\` | revocation answers, DER in base64 |
| \`bundle_files\` | what is served for a bundle (docs/attestation.md §9), by the SHA-256 that it is asked for under; the file may be another one |
| \`nras_keys\` | a JSON Web Key Set, taken for that of NVIDIA's remote service |
| \`expected\` | what the caller holds: \`endpoint\` (the path that was asked), \`request\`, \`response\`, \`transcript\` (texts), \`nonce\` (hex); and \`event\`: true where the caller says that the input is one event of a stream by itself |
| \`without\` | checks that the caller does not want: \`reference_values\`, \`revocation\` |
| \`cpu\` | \`reference\`: the guests and launch files that the caller knows (docs/attestation.md §7.13); \`weights\`: the verity root of the weights that the launch file must name |
| \`max_age_seconds\`, \`max_batch\`, \`required_checks\` | the caller's policy |
| \`max_characters\` | the largest text that the caller accepts |

\`expect\`: \`valid\` and \`level\`; of a file that fails \`failed_check\` and \`code\`, and no other check may fail (those that rest
on it are skipped); of one that passes \`skipped\`: the checks that do not apply, and no others may be skipped.

## The manifest

\`manifest.json\` (\`format\`: \`countersign-vectors/1\`) lists all cases in the order of the checks: \`file\`, \`sha256\` of its bytes,
\`description\`, \`check\`, \`features\`, and \`expected\`, which is one of

| \`verdict\` | with | it means |
|---|---|---|
| \`valid\` | \`level\` | every check passes |
| \`invalid\` | \`code\` | a check fails: the code of the first, in the order in which checks stand in the manifest |
| \`incomplete\` | \`code\` | it is not valid, and every check that fails only lacked what it needs: \`bundle_unavailable\`, \`revocation_unavailable\`, \`rim_unavailable\`, \`token_key_unavailable\` or \`collateral_unavailable\` |

\`parts\` has the SHA-256 of every file that cases name. \`features\` says what a case makes use of: \`evidence\` (bare), \`text\`,
\`batch\`, \`compact\` (its members stand in a bundle), \`stream\`, \`exchange\` (something of the caller's to compare with), \`nras\` (a token of NVIDIA's remote service), \`rim\`, \`ocsp\`,
\`processor\` (a guest that the caller knows), \`policy\` (a caller's limit).

## Your verifier

Write a program that takes one argument, the path of a case, gives its verdict as the last line of its standard output, and ends
with the code that belongs to it:

| last line | exit code | |
|---|---|---|
| \`valid LEVEL\` | 0 | \`valid none\`, \`valid gpu\`, \`valid gpu+cpu\` |
| \`invalid CODE\` | 1 | |
| | 2 | it was called wrongly |
| \`incomplete CODE\` | 3 | |
| | 4 | it does not support what the case needs. This is counted apart, never as agreement |

It reads the case's input and \`options\`, and no other member; files that they name stand in the folder above that of the case. It asks no
network. Then, in this repository:

\`\`\`sh
npm ci
npm run conformance -- -- ./their-verifier                  # -- PROGRAM [ARGS…]
npm run conformance -- --only revocation. -- python -m their.verifier
\`\`\`

The runner checks the manifest's hashes first. It runs the program on two cases at a time, each for at most 60 s (\`--timeout SECONDS\`) and
64 KiB of output, prints where it differs, and ends with 0 where the program agrees on every case that it supports, with 1 where it does not
or supports none, with 2 when it was called wrongly or the program cannot be run. \`--json\` prints every case. Once five cases were not done in
time the rest is not asked. \`docs/conformance.md\` has what our verifiers and NVIDIA's say.

## Making them

\`node scripts/make-vectors.ts\` (Node 24) writes what is missing; \`--force\` makes everything anew. \`keys/\` holds the private
keys of every test certificate, so that vectors can be added under the same roots: by us and by you. They protect nothing, and
no root here is to be trusted outside of a test. Signatures are ECDSA, so a file made again differs in its bytes.

`;

export function readme(vectors: readonly (readonly [string, Vector])[]): string {
  const rows = vectors.map(([name, { description, expect }]) => {
    const verdict = expect.valid ? `valid, level ${expect.level}` : `\`${expect.code}\``;
    return `| \`${name}\` | ${description} | ${verdict} |`;
  });
  return `${PROSE}## The files\n\nIn \`cases/\`, named \`CHECK.pass.WHAT\` and \`CHECK.fail.WHAT\`.\n\n| file | what it shows | verdict |\n|---|---|---|\n${rows.join('\n')}\n`;
}

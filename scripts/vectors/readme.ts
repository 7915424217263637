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
| \`nras_keys\` | a JSON Web Key Set, taken for that of NVIDIA's remote service |
| \`expected\` | what the caller holds: \`endpoint\` (the path that was asked), \`request\`, \`response\`, \`transcript\` (texts), \`nonce\` (hex) |
| \`without\` | checks that the caller does not want: \`reference_values\`, \`revocation\` |
| \`max_age_seconds\`, \`max_batch\`, \`required_checks\` | the caller's policy |
| \`max_characters\` | the largest text that the caller accepts |

\`expect\`: \`valid\` and \`level\`; of a file that fails \`failed_check\` and \`code\`, and no other check may fail (those that rest
on it are skipped); of one that passes \`skipped\`: the checks that do not apply, and no others may be skipped.

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

// What each check means, in plain words, in the groups in which the page shows them.
import { type CheckName, CPU_CHECKS } from '../../verify/index.ts';

interface Words {
  readonly title: string;
  readonly meaning: string;
  /** Said in place of the verdict's text where this check fails. */
  readonly failure: string;
}

export const WORDS: Readonly<Record<CheckName, Words>> = {
  form: {
    title: 'It is an attestation',
    meaning: 'The proof has the members it should have, each once, and nothing is cut off.',
    failure: 'This is not an attestation in the form that the service makes.',
  },
  bundle: {
    title: 'Its bundle is the one that it names',
    meaning: 'Token, evidence and session, which other answers share, have the SHA-256 that the proof names.',
    failure: 'The bundle that the proof names is not here, or is another one.',
  },
  raw_hash: {
    title: 'The text hashes to the nonce',
    meaning:
      'SHA-256 of the signed text, computed here, is the nonce, or leads to it by its path in a tree of answers. Change one byte and it does not.',
    failure: 'The text was changed after it was signed.',
  },
  raw_members: {
    title: 'Request, answer and time',
    meaning: 'The signed text is one request, one answer and a time; at most also endpoint, session and stream.',
    failure: 'The signed text is not one question, one answer and a time.',
  },
  expected_exchange: {
    title: 'It is your exchange',
    meaning: 'What was signed is what you sent and what you received, down to the bytes of the stream.',
    failure: 'What was signed is not what was sent and received.',
  },
  token_shape: {
    title: 'The token can be read',
    meaning: "The verifier beside the GPU wrote its result in a form that NVIDIA's tools make.",
    failure: 'The token cannot be read.',
  },
  token_nonce: {
    title: 'The token is about this nonce',
    meaning: 'Every part of the token names the same nonce, so it was made for this text.',
    failure: 'The token was made for another text.',
  },
  token_result: {
    title: 'The token says yes',
    meaning: 'The verifier beside the GPU came to a good result.',
    failure: 'The verifier beside the GPU did not say yes.',
  },
  token_digests: {
    title: 'No part was swapped',
    meaning: 'The parts of the token have the digests that its first part names.',
    failure: 'A part of the token was swapped.',
  },
  token_signature: {
    title: 'Who signed the token',
    meaning:
      "A signature of NVIDIA's remote service counts by itself. A local verifier's token can be made by anyone, so it counts for nothing here.",
    failure: "The token's signature does not fit.",
  },
  report_form: {
    title: "The GPU's report can be read",
    meaning: 'It is an SPDM measurement report, the form in which a GPU speaks about itself.',
    failure: "The GPU's report cannot be read.",
  },
  report_nonce: {
    title: 'The GPU signed this nonce',
    meaning:
      'The 32 bytes that the device was given, and signed, are this nonce. This ties text and hardware together.',
    failure: 'The GPU signed something else.',
  },
  report_signature: {
    title: "The GPU's signature is right",
    meaning: "The report was signed by the key in the GPU's certificate, and not a bit of it has changed.",
    failure: "The GPU's signature does not fit.",
  },
  report_chain: {
    title: 'The key leads up to a known root',
    meaning: "The GPU's certificate leads, signature by signature, up to a root that this page knows.",
    failure: "The GPU's certificate does not lead to a known maker.",
  },
  report_fwid: {
    title: 'The firmware is the certified one',
    meaning: 'The firmware that made the report is the one its certificate was issued for.',
    failure: "The GPU's firmware is not the certified one.",
  },
  revocation: {
    title: 'Nothing was revoked',
    meaning: 'NVIDIA says now that the authorities above the GPU are still good.',
    failure: 'A certificate above this GPU was revoked, or could not be asked about.',
  },
  reference_values: {
    title: 'The GPU runs what NVIDIA published',
    meaning: 'What the GPU measured of its firmware has the values that NVIDIA signed.',
    failure: 'The GPU does not run what NVIDIA published.',
  },
  token_report_match: {
    title: 'Token and report agree',
    meaning: 'Driver, VBIOS and device in the token are those in the report.',
    failure: 'Token and report speak of different devices.',
  },
  device_mode: {
    title: 'Confidential mode',
    meaning: 'The GPU booted securely, with debugging off.',
    failure: 'The GPU was not in confidential mode.',
  },
  topology: {
    title: 'The devices belong together',
    meaning: 'All GPUs are in one mode, and the switches between them are those that they name.',
    failure: 'The devices do not belong together.',
  },
  release: {
    title: 'The release is who it says',
    meaning:
      "Its list of guests was signed by its repository's public workflow, and stands in a public log since the time that is shown.",
    failure: 'The release that should say which software is right does not verify.',
  },
  release_status: {
    title: 'The release was not withdrawn',
    meaning: 'Its publisher signs every week which releases were withdrawn; this one is not among them.',
    failure: 'The release was withdrawn, or nothing recent shows that it was not.',
  },
  cpu_form: {
    title: "The processor's report can be read",
    meaning: 'It is a report of AMD SEV-SNP or a quote of Intel TDX, beside the statement that it is about.',
    failure: "The processor's report cannot be read.",
  },
  cpu_signature: {
    title: "The processor's signature is right",
    meaning: "The report was signed by the key in the processor's certificate, and not a bit of it has changed.",
    failure: "The processor's signature does not fit.",
  },
  cpu_chain: {
    title: "The processor's key leads up to a known root",
    meaning: "The processor's certificate leads, signature by signature, up to a root that this page knows.",
    failure: "The processor's certificate does not lead to a known maker.",
  },
  cpu_identity: {
    title: 'The certificate fits the report',
    meaning:
      "AMD: chip or cloud provider, and firmware, are the certificate's. Intel: its quoting enclave and module are.",
    failure: 'The certificate belongs to another processor.',
  },
  cpu_revocation: {
    title: 'Its maker revoked nothing above it',
    meaning: "The maker's list of revoked certificates does not name the authorities above this processor.",
    failure: "A certificate above this processor was revoked, or its maker's list is missing.",
  },
  cpu_vtpm: {
    title: 'The virtual TPM belongs to this processor',
    meaning: "On Azure the guest speaks through a TPM: its key stands in the processor's report.",
    failure: 'The virtual TPM does not belong to this processor.',
  },
  cpu_binding: {
    title: 'Processor and GPU signed one statement',
    meaning:
      'The processor (on Azure, its virtual TPM) signed a hash of the statement and of what the GPU signed over it.',
    failure: 'Processor and GPU did not sign the same statement.',
  },
  cpu_devices: {
    title: 'The GPU is the one of that statement',
    meaning: 'The GPU that signed this answer is one of those that the statement names.',
    failure: 'The GPU is not one that the statement names.',
  },
  cpu_answer: {
    title: "The session's key signed this answer",
    meaning: 'The key in the statement signed this text and this GPU report, and the text names that statement.',
    failure: "The session's key did not sign this answer.",
  },
  cpu_mode: {
    title: 'No debugging, no migration',
    meaning: 'The host may not debug or move this guest, and the guest, or its paravisor, asked for the report.',
    failure: "This guest's mode is not accepted.",
  },
  cpu_tcb: {
    title: "The processor's firmware is accepted",
    meaning: 'Its firmware is as new as its maker, or the caller, demands.',
    failure: "The processor's firmware is too old.",
  },
  cpu_measurement: {
    title: 'The guest is a known one',
    meaning:
      'What the guest was started with has values that the caller knows: here those of the release that you name.',
    failure: 'The guest was started with something else than expected.',
  },
  cpu_software: {
    title: 'The software is a known one',
    meaning: 'The launch file is one that the caller knows, and the processor vouches for its hash.',
    failure: 'The guest was started with another launch file than expected.',
  },
  cpu_weights: {
    title: 'The weights are the expected ones',
    meaning: 'The launch file has its engine load the weights that the caller names. This page names none.',
    failure: 'The guest was started with other weights than expected.',
  },
  policy: {
    title: "The caller's own rules",
    meaning:
      'How old a proof may be, and which checks must pass. This page asks for no more than the other checks, and for a guest of the release where you name one.',
    failure: 'It does not come from a guest of the release that you named.',
  },
};

export const GROUPS: readonly (readonly [title: string, names: readonly CheckName[]])[] = [
  ['The text', ['form', 'bundle', 'raw_hash', 'raw_members', 'expected_exchange']],
  ['The token', ['token_shape', 'token_nonce', 'token_result', 'token_digests', 'token_signature']],
  ["The GPU's report", ['report_form', 'report_nonce', 'report_signature', 'report_chain', 'report_fwid']],
  [
    'What stands behind it',
    ['revocation', 'reference_values', 'token_report_match', 'device_mode', 'topology', 'policy'],
  ],
  ['The release', ['release', 'release_status']],
  ['The processor that asked', CPU_CHECKS],
];

/** The badge by verdict; `valid` by level. */
export const BADGES = {
  gpu: 'Proven: a GPU signed this',
  'gpu+cpu': "Proven: a GPU and a guest's key signed this",
  measured: "Proven: a GPU and a known guest's key signed this",
  none: 'Intact, but no GPU signed this',
  simulated: 'Demo: intact, but no real GPU',
  unchecked: 'Not fully checked',
  invalid: 'Not valid',
  foreign: 'Not a proof file',
  other: 'Not about an answer',
} as const;

/** The badge of a proof that is one line. */
export const SHORT_BADGES: Readonly<Record<keyof typeof BADGES, string>> = {
  gpu: 'Proven by a GPU',
  'gpu+cpu': 'Proven by a GPU and a guest',
  measured: 'Proven by a GPU and a known guest',
  none: 'Intact',
  simulated: 'Demo proof',
  unchecked: 'Not fully checked',
  invalid: 'Not valid',
  foreign: 'Not a proof file',
  other: 'Not about an answer',
};

export const ICONS = { valid: '✓', simulated: '◇', unchecked: '?', invalid: '✕', foreign: '–', running: '…' } as const;

/** What the page reads, for a visitor who brought something else. */
export const READABLE =
  'A proof is the JSON of an attestation, an answer that carries one, a saved stream, or evidence of GPUs or a processor.';

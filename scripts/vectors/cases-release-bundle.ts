// Cases about a release's bundle: its form, whom its signature rests on, and the log. Each has its code.
import {
  BEFORE,
  bad,
  badRelease,
  badStatement,
  changed,
  entryIn,
  LOGGED,
  type Maker,
  PINNED,
  release,
  withEntries,
  withEntry,
  withMaterial,
  without,
  withProof,
} from './release-kit.ts';
import { b64, bodyOf, checkpointOf, entryOf, rootOf, sha256 } from './release-world.ts';

export const FORM: readonly Maker[] = [
  bad('release_too_large', 'bundle', (world) => ({
    description: 'a bundle of more than 524,288 characters',
    options: PINNED,
    bundle: release(world),
    spaces: 524_288,
  })),
  badStatement('release_too_large', 'statement', 'a statement of more than 262,144 bytes', {
    predicate: { padding: 'x'.repeat(262_144) },
  }),
  bad('release_malformed', 'not-json', () => ({
    description: 'no JSON',
    options: PINNED,
    bundle_text: '{"mediaType":',
  })),
  bad('release_malformed', 'name-twice', (world) => ({
    description: 'a member twice',
    options: PINNED,
    bundle_text: JSON.stringify(release(world)).replace('{', '{"dsseEnvelope":{},'),
  })),
  changed('release_malformed', 'unknown-member', 'a member that is not known', (bundle) => ({
    ...bundle,
    trustedRoot: {},
  })),
  changed('release_malformed', 'no-inclusion-proof', 'no inclusion proof', (bundle) =>
    withEntries(bundle, [without(entryIn(bundle), 'inclusionProof')]),
  ),
  changed('release_malformed', 'negative-index', 'a negative index', (bundle) => withEntry(bundle, { logIndex: '-1' })),
  changed('release_malformed', 'number', 'a number where protobuf writes a text', (bundle) =>
    withEntry(bundle, { logIndex: 1003 }),
  ),
  changed('release_malformed', 'not-base64', 'a signature that is not base64', (bundle) => ({
    ...bundle,
    dsseEnvelope: { ...bundle.dsseEnvelope, signatures: [{ sig: '@@@@' }] },
  })),
  ...['0.1', '0.2'].map((version) =>
    changed('release_unsupported', `v${version}`, `a bundle of version ${version}`, (bundle) => ({
      ...withMaterial(bundle, { x509CertificateChain: { certificates: [bundle.verificationMaterial.certificate] } }),
      mediaType: `application/vnd.dev.sigstore.bundle+json;version=${version}`,
    })),
  ),
  changed('release_unsupported', 'certificate-chain', 'a chain of certificates in place of one', (bundle) =>
    withMaterial(bundle, { x509CertificateChain: { certificates: [bundle.verificationMaterial.certificate] } }),
  ),
  changed('release_unsupported', 'public-key', 'a key in place of a certificate', (bundle) =>
    withMaterial(bundle, { publicKey: { hint: 'k' } }),
  ),
  changed('release_unsupported', 'message', 'a message in place of a statement', (bundle) => ({
    ...without(bundle, 'dsseEnvelope'),
    messageSignature: { messageDigest: { algorithm: 'SHA2_256', digest: b64(sha256('a')) }, signature: b64('b') },
  })),
  changed('release_unsupported', 'payload-type', 'an envelope of something else', (bundle) => ({
    ...bundle,
    dsseEnvelope: { ...bundle.dsseEnvelope, payloadType: 'text/plain' },
  })),
  changed('release_unsupported', 'two-signatures', 'two signatures', (bundle) => ({
    ...bundle,
    dsseEnvelope: {
      ...bundle.dsseEnvelope,
      signatures: [...bundle.dsseEnvelope.signatures, ...bundle.dsseEnvelope.signatures],
    },
  })),
  changed('release_unsupported', 'two-entries', 'two log entries', (bundle) =>
    withEntries(bundle, [entryIn(bundle), entryIn(bundle)]),
  ),
  changed('release_unsupported', 'no-entry', 'no log entry', (bundle) => withEntries(bundle, [])),
  ...['intoto/0.0.2', 'hashedrekord/0.0.1', 'dsse/0.0.2'].map((kind) => {
    const [name, version] = kind.split('/');
    return changed('release_unsupported', kind.replace('/', '-'), `a log entry ${kind}`, (bundle) =>
      withEntry(bundle, { kindVersion: { kind: name, version } }),
    );
  }),
];

export const TRUST: readonly Maker[] = [
  badRelease('release_untrusted', 'authority', 'a certificate of an authority that the root does not have', {
    leaf: { signedBy: 'stranger' },
  }),
  badRelease('release_untrusted', 'log', 'an entry of a log that the root does not have', { log: 'strangeLog' }),
  badRelease('release_untrusted', 'certificate-log', 'a receipt of a log that the root does not have', {
    leaf: { receipt: 'strange' },
  }),
  badRelease('release_untrusted', 'time-authority', 'the word of a time authority that the root does not have', {
    version: 2,
    stamps: ['strange'],
  }),
  bad('release_root_expired', 'authority', (world) => ({
    description: 'the root ended the certificate authority before',
    options: { ...PINNED, trusted_root: rootOf(world, { ends: { authority: BEFORE } }) },
    bundle: release(world),
  })),
  bad('release_root_expired', 'time-authority', (world) => ({
    description: 'the root ended the time authority before',
    options: { ...PINNED, trusted_root: rootOf(world, { ends: { time: BEFORE } }) },
    bundle: release(world, { version: 2 }),
  })),
  ...([1, 2] as const).map((version) =>
    bad('release_log_ended', `v${version}`, (world) => ({
      description: `the root ended the log of version ${version} before`,
      options: { ...PINNED, trusted_root: rootOf(world, { ends: { [`log${version}`]: BEFORE } }) },
      bundle: release(world, { version }),
    })),
  ),
  badRelease('release_certificate_invalid', 'impostor', "a key that calls itself the root's authority", {
    leaf: { signedBy: 'impostor' },
  }),
  badRelease('release_certificate_invalid', 'purpose', 'a certificate for servers', {
    leaf: { purpose: '1.3.6.1.5.5.7.3.1' },
  }),
  badRelease('release_certificate_invalid', 'no-purpose', 'a certificate for nothing', { leaf: { purpose: null } }),
  badRelease('release_certificate_invalid', 'authority', 'a certificate that is an authority', {
    leaf: { isCa: true },
  }),
  changed('release_certificate_invalid', 'not-der', 'no certificate', (bundle) =>
    withMaterial(bundle, { certificate: { rawBytes: b64('no DER') } }),
  ),
  badRelease('release_certificate_expired', 'logged-after', 'logged after the ten minutes of its certificate', {
    leaf: { from: new Date('2026-06-01T11:40:00Z') },
  }),
  badRelease('release_certificate_expired', 'logged-before', 'logged before its certificate', {
    leaf: { from: new Date('2026-06-01T12:00:01Z') },
  }),
  badRelease('release_certificate_expired', 'stamped-after', "a time authority's word of after the certificate", {
    stamps: ['right'],
    stampedAt: new Date('2026-06-01T12:30:00Z'),
  }),
  badRelease('release_sct_invalid', 'none', 'a certificate without a receipt', { leaf: { receipt: 'none' } }),
  badRelease('release_sct_invalid', 'wrong', 'a receipt for another issuer', { leaf: { receipt: 'wrong' } }),
  badRelease('release_sct_invalid', 'twice', 'two receipts of one log', { leaf: { receipt: 'twice' } }),
  bad('release_sct_invalid', 'ended', (world) => ({
    description: 'the log of certificates had ended',
    options: { ...PINNED, trusted_root: rootOf(world, { ends: { certificates: BEFORE } }) },
    bundle: release(world),
  })),
];

export const LOG: readonly Maker[] = [
  changed(
    'release_time_invalid',
    'none',
    'neither log nor time authority gives a time',
    (bundle) =>
      withMaterial(bundle, { certificate: bundle.verificationMaterial.certificate, timestampVerificationData: {} }),
    { version: 2 },
  ),
  changed('release_time_invalid', 'unsigned', 'the time of a log of version 1 is not what the log signed', (bundle) =>
    withEntry(bundle, { integratedTime: String(LOGGED.getTime() / 1000 + 1) }),
  ),
  badRelease('release_time_invalid', 'another-signature', "a time authority's word about another signature", {
    version: 2,
    stamps: ['other'],
  }),
  badRelease('release_time_invalid', 'forged', "another key in the time authority's name", {
    version: 2,
    stamps: ['wrong'],
  }),
  bad('release_time_ahead', 'clock', (world) => ({
    description: "logged six minutes after the caller's time: one of the clocks is off",
    options: { ...PINNED, at: '2026-06-01T11:54:00Z' },
    bundle: release(world),
  })),
  badRelease('release_entry_mismatch', 'statement', 'the entry is about another statement', {
    logged: (envelope) => ({ ...envelope, payload: Buffer.from('{}') }),
  }),
  badRelease('release_entry_mismatch', 'statement-v2', 'the entry is about another statement', {
    version: 2,
    logged: (envelope) => ({ ...envelope, payload: Buffer.from('{}') }),
  }),
  badRelease('release_entry_mismatch', 'signature', 'the entry is about another signature', {
    logged: (envelope) => ({ ...envelope, signature: Buffer.from('another') }),
  }),
  bad('release_entry_mismatch', 'certificate', (world) => ({
    description: 'the entry is about another certificate',
    options: PINNED,
    bundle: release(world, { logged: (envelope) => ({ ...envelope, certificate: world.authority.certificate }) }),
  })),
  changed('release_entry_mismatch', 'kind', 'the entry is of another kind than the bundle says', (bundle, world) => {
    const envelope = { payload: Buffer.from(''), signature: Buffer.from(''), certificate: world.authority.certificate };
    const body = bodyOf('hashedrekord/0.0.2', envelope);
    return withEntries(bundle, [entryOf(world, 'log1', 'dsse/0.0.1', body, LOGGED, true)]);
  }),
  changed('release_proof_invalid', 'another-tree', 'a path to another tree', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, hashes: [b64(sha256('x')), ...proof.hashes.slice(1)] })),
  ),
  changed('release_proof_invalid', 'too-short', 'a path that breaks off', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, hashes: proof.hashes.slice(0, -1) })),
  ),
  changed('release_proof_invalid', 'too-long', 'a path with a hash too many', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, hashes: [...proof.hashes, b64(sha256('x'))] })),
  ),
  changed('release_proof_invalid', 'outside', 'an index outside of the tree', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, logIndex: '5' })),
  ),
  changed('release_checkpoint_invalid', 'older', 'the checkpoint of a smaller tree', (bundle, world) =>
    withProof(bundle, (proof) => ({
      ...proof,
      checkpoint: { envelope: checkpointOf(world, 'log1', 3, sha256('older')) },
    })),
  ),
  changed(
    'release_checkpoint_invalid',
    'other-size',
    'a checkpoint of the same root and another size',
    (bundle, world) =>
      withProof(bundle, (proof) => ({
        ...proof,
        checkpoint: { envelope: checkpointOf(world, 'log1', 6, Buffer.from(proof.rootHash, 'base64')) },
      })),
  ),
  changed('release_checkpoint_invalid', 'other-log', 'a checkpoint that another log signed', (bundle, world) =>
    withProof(bundle, (proof) => ({
      ...proof,
      checkpoint: { envelope: checkpointOf(world, 'log1', 5, Buffer.from(proof.rootHash, 'base64'), ['strangeLog']) },
    })),
  ),
  changed('release_checkpoint_invalid', 'unsigned', 'a checkpoint without a signature', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, checkpoint: { envelope: `log1.example\n5\n${proof.rootHash}\n\n` } })),
  ),
  changed('release_checkpoint_invalid', 'no-note', 'a checkpoint that is no note', (bundle) =>
    withProof(bundle, (proof) => ({ ...proof, checkpoint: { envelope: 'log1.example' } })),
  ),
  bad('release_signature_invalid', 'another-key', (world) => ({
    description: "a signature of another key than the certificate's",
    options: PINNED,
    bundle: release(world, { signer: world.keys.strangeLog }),
  })),
];

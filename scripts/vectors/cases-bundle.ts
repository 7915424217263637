// Cases about compact attestations: token, evidence and session stand in a bundle (docs/attestation.md §9).
import { hash } from 'node:crypto';
import { withLastMember } from '../../proto/json.ts';
import type { FailureCode } from '../../verify/index.ts';
import { BATCHED, treeOf } from './cases-batch.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from './exchange.ts';
import { type Attestation, type ForgeOptions, forge } from './forge.ts';
import { ALONE, type Case, fail, type Kit, pass, SELF_ASSERTED } from './kit.ts';
import type { VectorOptions } from './vector.ts';

interface Compact {
  readonly attestation: Record<string, unknown>;
  readonly bundle: string;
}

const TREE = treeOf(2, 1);
const IN_BATCH: ForgeOptions = { parts: BATCHED, batch: { member: TREE.member, nonce: TREE.nonce } };
const STATEMENT = '{"version":1}';
const sha256 = (text: string) => hash('sha256', text);

/** The short form of a session, of which only the statement's hash is looked at before it is whole. */
const SHORT = { statement_sha256: sha256(STATEMENT), signature: 'AAAA' };
const SESSION = { type: 'SEV_SNP', report: 'AAAA', statement: STATEMENT };

/** @param text of the bundle, from its members. */
function compact(
  { token, evidence, ...own }: Attestation,
  text: (members: Pick<Attestation, 'token' | 'evidence'>) => string = JSON.stringify,
): Compact {
  const bundle = text({ token, evidence });
  return { attestation: { ...own, bundle: sha256(bundle) }, bundle };
}

/** The bundle becomes a part of this name. @param of SHA-256 that it is served under; that of the attestation by default */
function served(
  { part }: Kit,
  name: string,
  { attestation, bundle }: Compact,
  of = attestation.bundle,
): Partial<VectorOptions> {
  return { bundle_files: { [String(of)]: part(`parts/bundle-${name}.txt`, () => bundle) } };
}

/** A batched attestation whose bundle's text is another. */
const otherText = (what: string, description: string, text: Parameters<typeof compact>[1]): Case =>
  fail('bundle', what, 'bundle_malformed', async (kit) => {
    const made = compact(await forge(kit.world, IN_BATCH), text);
    return { description, attestation: made.attestation, options: served(kit, what, made) };
  });

/** A bundle of a session, and an attestation that names it and has a nonce of its own. */
const ofSession = (what: string, code: FailureCode, description: string, cpu: object, more: object = SESSION): Case =>
  fail('bundle', what, code, async (kit) => {
    const bundle = JSON.stringify({ cpu: more });
    const attestation = { ...(await forge(kit.world)), ...cpu, bundle: sha256(bundle) };
    return { description, attestation, options: served(kit, what, { attestation, bundle }) };
  });

export const BUNDLE_CASES: readonly Case[] = [
  pass('bundle', 'batch', async (kit) => {
    const made = compact(await forge(kit.world, IN_BATCH));
    const options = served(kit, 'batch', made);
    const { attestation } = made;
    return { description: 'token and evidence of a batch stand in its bundle', attestation, options, skipped: ALONE };
  }),
  pass('bundle', 'response-text', async (kit) => {
    const made = compact(await forge(kit.world, IN_BATCH));
    const text = withLastMember(WHOLE.response, 'attestation', JSON.stringify(made.attestation));
    const description = 'the text of a response that carries a compact attestation';
    return { description, text, options: served(kit, 'response-text', made), skipped: SELF_ASSERTED };
  }),
  fail('bundle', 'away', 'bundle_unavailable', async (kit) => ({
    description: 'nobody has the bundle that the attestation names',
    attestation: compact(await forge(kit.world, IN_BATCH)).attestation,
  })),
  fail('bundle', 'of-another-answer-away', 'bundle_unavailable', async (kit) => {
    const { attestation } = compact(await forge(kit.world, IN_BATCH));
    const other = compact(await forge(kit.world, { parts: OTHER }));
    const options = served(kit, 'of-another-answer', other);
    return { description: 'a bundle is there, but of another hash than the attestation names', attestation, options };
  }),
  fail('bundle', 'another-text', 'bundle_mismatch', async (kit) => {
    const made = compact(await forge(kit.world, IN_BATCH));
    const changed = { ...made, bundle: `${made.bundle}\n` };
    const description = 'what is served for the bundle has a line end more, and so another hash';
    return { description, attestation: made.attestation, options: served(kit, 'another-text', changed) };
  }),
  fail('bundle', 'another-answers', 'bundle_mismatch', async (kit) => {
    const { attestation } = compact(await forge(kit.world, IN_BATCH));
    const other = compact(await forge(kit.world, { parts: OTHER }));
    const options = served(kit, 'another-answers', other, attestation.bundle);
    return { description: "another answer's bundle is served under the hash that is named", attestation, options };
  }),
  otherText('not-json', 'the bundle breaks off, and the attestation names its hash', (members) =>
    JSON.stringify(members).slice(0, -1),
  ),
  otherText('list', 'the bundle is a list', (members) => JSON.stringify([members])),
  otherText('empty', 'the bundle has no member', () => '{}'),
  otherText('member-twice', 'the bundle has its token twice', ({ token, evidence }) =>
    JSON.stringify({ token, evidence }).replace('{', `{"t\\u006fken":${JSON.stringify(token)},`),
  ),
  otherText('other-member', 'the bundle has a nonce too', (members) =>
    JSON.stringify({ ...members, nonce: TREE.nonce }),
  ),
  otherText('no-evidence', 'the bundle has a token without evidence', ({ token }) => JSON.stringify({ token })),
  fail('bundle', 'token-in-both', 'bundle_malformed', async (kit) => {
    const whole = await forge(kit.world, IN_BATCH);
    const made = compact(whole);
    const { bundle } = made;
    const attestation = { ...whole, bundle: made.attestation.bundle };
    const description = 'token and evidence stand in the attestation and in its bundle';
    return { description, attestation, options: served(kit, 'token-in-both', { attestation, bundle }) };
  }),
  ofSession('session-in-bundle-only', 'bundle_malformed', 'the bundle has a session, the attestation names none', {}),
  ofSession(
    'session-signed-in-bundle',
    'bundle_malformed',
    'the signature of the answer stands in the bundle',
    { cpu: SHORT },
    { ...SESSION, signature: SHORT.signature },
  ),
  ofSession('session-in-both', 'bundle_malformed', 'the session stands in the attestation and in its bundle', {
    cpu: { ...SESSION, ...SHORT },
  }),
  ofSession(
    'another-session',
    'bundle_mismatch',
    "the bundle has another session than the attestation's signature is of",
    { cpu: { ...SHORT, statement_sha256: sha256('{"version":2}') } },
  ),
  fail('report_nonce', 'bundle-of-another-answer', 'report_nonce_mismatch', async (kit) => {
    const reportNonce = nonceHex(rawOf(OTHER));
    const made = compact(await forge(kit.world, { ...IN_BATCH, reportNonce }));
    const description = "the bundle that is named has another answer's report";
    return { description, attestation: made.attestation, options: served(kit, 'report-of-another-answer', made) };
  }),
  fail('token_nonce', 'bundle-of-another-answer', 'token_nonce_mismatch', async (kit) => {
    const made = compact(await forge(kit.world, { ...IN_BATCH, tokenNonce: nonceHex(rawOf(OTHER)) }));
    const description = "the bundle that is named has another answer's token";
    return { description, attestation: made.attestation, options: served(kit, 'token-of-another-answer', made) };
  }),
  fail('report_chain', 'bundle-of-a-stranger', 'untrusted_root', async (kit) => {
    const made = compact(await forge(kit.world, { ...IN_BATCH, devices: [kit.world.strangers.device] }));
    const description = 'the bundle that is named has the evidence of a device under a root that nobody trusts';
    return { description, attestation: made.attestation, options: served(kit, 'of-a-stranger', made) };
  }),
];

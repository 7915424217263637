// Cases about the token: its shape, nonce, result, digests and signature, and whether it agrees with the report.
import { createHmac } from 'node:crypto';
import { makeToken } from '../../test/twin/token.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from './exchange.ts';
import { forge } from './forge.ts';
import { ALONE, type Case, fail, type Kit, type Made, pass, UNCOMPARED } from './kit.ts';
import { es384, jwks, KID, NRAS_ISSUER, nrasToken, nvattestToken, type ServiceToken, unsigned } from './tokens.ts';
import { AT, DAY_MS } from './world.ts';

const NONCE = nonceHex(rawOf(WHOLE));
const OF_DEVICES = ['report_form', 'report_nonce', 'report_signature', 'report_chain', 'report_fwid'] as const;
const AFTER_THEM = ['revocation', 'reference_values', 'token_report_match', 'topology'] as const;
const APPRAISED = [...UNCOMPARED, ...OF_DEVICES, ...AFTER_THEM] as const;
const KEYS = "under a test key that the caller hands in as NVIDIA's";

const nras = ({ world, service }: Kit, change: Partial<ServiceToken> = {}): string =>
  nrasToken({ key: service.key, nonce: NONCE, devices: [world.a], ...change });

/** The good attestation with another token; `service` keys handed in. */
async function withToken(kit: Kit, description: string, token: string, skipped?: Made['skipped']): Promise<Made> {
  const attestation = { ...(await forge(kit.world)), token };
  const options = { nras_keys: jwks(kit.service.publicKey) };
  return { description, attestation, options, ...(skipped === undefined ? {} : { skipped }) };
}

/** Every JWT in it signed anew with HS256 under another secret. */
const underAnotherSecret = (token: string): string =>
  token.replace(/(eyJ[\w-]*\.[\w-]*)\.[\w-]*/g, (_, input: string) => {
    return `${input}.${createHmac('sha256', 'another secret').update(input).digest('base64url')}`;
  });

const submodule = (token: string): string => /"GPU-0": ?"([^"]+)"/.exec(token)?.[1] ?? '';

const CLAIMS_4 = { 'x-nvidia-gpu-claims-version': '4.0', 'x-nvidia-mismatch-opaque-data-records': null };

export const TOKEN_CASES: readonly Case[] = [
  pass('token_shape', 'nvtrust', async (kit) =>
    withToken(kit, "NVIDIA's Python SDK: a bundle inside of its envelope", (await forge(kit.world)).token, ALONE),
  ),
  pass('token_shape', 'nvattest', (kit) =>
    withToken(kit, "NVIDIA's nvattest: a detached EAT, alg none", nvattestToken(NONCE, [kit.world.a]), ALONE),
  ),
  pass('token_shape', 'nras', (kit) =>
    withToken(kit, `NVIDIA's remote service: a detached EAT, ES384 ${KEYS}`, nras(kit), UNCOMPARED),
  ),
  pass('token_shape', 'claims-4', (kit) =>
    withToken(
      kit,
      'claims 4.0 of nvattest 2: values of the opaque data by name, and no record of it that differs',
      nvattestToken(NONCE, [kit.world.a], { ...CLAIMS_4, 'x-nvidia-attester-claims': { FSP_UCODE_MIN_SVN: 7 } }),
      ALONE,
    ),
  ),
  fail('token_shape', 'attester-claims', 'token_malformed', (kit) =>
    withToken(
      kit,
      'claims 4.0 with a value of the opaque data that is no number',
      nvattestToken(NONCE, [kit.world.a], { ...CLAIMS_4, 'x-nvidia-attester-claims': { FSP_UCODE_MIN_SVN: '7' } }),
    ),
  ),
  fail('token_shape', 'not-a-token', 'token_malformed', (kit) => withToken(kit, 'a text that is no token', 'token')),
  fail('token_shape', 'no-nonce', 'token_malformed', (kit) =>
    withToken(kit, 'a submodule carries no eat_nonce', nvattestToken(NONCE, [kit.world.a], { eat_nonce: undefined })),
  ),
  fail('token_shape', 'claim-twice', 'token_malformed', (kit) => {
    const payload = Buffer.from(`{"eat_nonce":"00","eat_nonce":"${NONCE}"}`).toString('base64url');
    const jwt = unsigned({}).replace(/\.[^.]*\./, `.${payload}.`);
    return withToken(kit, 'a claim stands twice in a JWT', jwt);
  }),

  pass('token_nonce', 'two-devices', async ({ world }) => ({
    description: 'the nonce stands in the overall JWT and in the submodules of two devices',
    attestation: await forge(world, { devices: [world.a, world.b] }),
    options: { without: { revocation: true } },
    skipped: [...ALONE, 'revocation'],
  })),
  fail('token_nonce', 'another-nonce', 'token_nonce_mismatch', async ({ world }) => ({
    description: "another answer's token, whole and well signed",
    attestation: await forge(world, { tokenNonce: nonceHex(rawOf(OTHER)) }),
  })),
  fail('token_nonce', 'another-nonce-in-submodule', 'token_nonce_mismatch', (kit) =>
    withToken(
      kit,
      'the nonce of the one submodule is another',
      nvattestToken(NONCE, [kit.world.a], { eat_nonce: '11'.repeat(32) }),
    ),
  ),

  pass('token_result', 'true', ({ attestation_file }) => ({
    description: 'the overall result is true',
    attestation_file,
    skipped: ALONE,
  })),
  fail('token_result', 'false', 'token_result_false', async ({ world }) => ({
    description: 'the verifier beside the GPU said no',
    attestation: await forge(world, { token: { result: false } }),
  })),

  pass('token_digests', 'nras', (kit) =>
    withToken(kit, 'the digest of a submodule is over its whole JWT', nras(kit), UNCOMPARED),
  ),
  fail('token_digests', 'submodule-swapped', 'token_digest_mismatch', async (kit) => {
    const token = makeToken(NONCE, [kit.world.a], AT);
    const other = makeToken(NONCE, [kit.world.a], AT, { claims: { 'x-nvidia-gpu-arch-check': false } });
    return withToken(
      kit,
      'a submodule of another token with the same nonce',
      token.replace(submodule(token), submodule(other)),
    );
  }),

  pass('token_signature', 'nras', (kit) => withToken(kit, `signed with ES384 ${KEYS}`, nras(kit), UNCOMPARED)),
  pass('token_signature', 'nras-without-evidence', async (kit) => {
    const { evidence: _, ...attestation } = await forge(kit.world);
    return {
      description: `signed with ES384 ${KEYS}: evidence may be absent, and the service's word is what counts`,
      attestation: { ...attestation, token: nras(kit) },
      options: { nras_keys: jwks(kit.service.publicKey) },
      skipped: APPRAISED,
      level: 'gpu',
    };
  }),
  fail('token_signature', 'another-secret', 'token_signature_invalid', async (kit) =>
    withToken(
      kit,
      'HS256 under a secret that NVIDIA has not published',
      underAnotherSecret((await forge(kit.world)).token),
    ),
  ),
  fail('token_signature', 'another-key', 'token_signature_invalid', (kit) =>
    withToken(kit, "another key's signature under the known key id", nras(kit, { key: kit.world.a.key })),
  ),
  fail('token_signature', 'unknown-key', 'token_key_unavailable', (kit) =>
    withToken(kit, 'a key id that is in no key set', nras(kit, { kid: `${KID}-other` })),
  ),
  fail('token_signature', 'expired', 'token_expired', (kit) =>
    withToken(kit, 'expired a day ago', nras(kit, { now: new Date(AT.getTime() - DAY_MS) })),
  ),
  fail('token_signature', 'another-issuer', 'token_issuer_unknown', (kit) =>
    withToken(
      kit,
      'signed by the known key in the name of another issuer',
      nras(kit, { issuer: `${NRAS_ISSUER}.example` }),
    ),
  ),
  fail('token_signature', 'none-in-nvidias-name', 'token_signature_invalid', (kit) => {
    const token = nvattestToken(NONCE, [kit.world.a], { iss: NRAS_ISSUER });
    return withToken(kit, "alg none in the name of NVIDIA's service", token);
  }),

  pass('token_report_match', 'driver-vbios-ueid', ({ attestation_file }) => ({
    description: 'the token names the driver, the VBIOS, the ueid and the model of the report',
    attestation_file,
    skipped: ALONE,
  })),
  fail('token_report_match', 'another-driver', 'token_report_mismatch', async ({ world }) => ({
    description: 'the token names another driver than the report',
    attestation: await forge(world, { token: { claims: { 'x-nvidia-gpu-driver-version': '550.90.07' } } }),
  })),
  fail('token_report_match', 'another-device', 'token_report_mismatch', async ({ world }) => ({
    description: 'the token is about another device than the evidence',
    attestation: { ...(await forge(world)), token: makeToken(NONCE, [world.b], AT) },
  })),
  fail('token_report_match', 'fewer-devices', 'token_report_mismatch', async ({ world }) => ({
    description: 'the token is about one device, the evidence of two',
    attestation: { ...(await forge(world, { devices: [world.a, world.b] })), token: makeToken(NONCE, [world.a], AT) },
    options: { without: { revocation: true } },
  })),
  fail('token_signature', 'bare-forged', 'token_signature_invalid', (kit) => {
    const jwt = es384({ eat_nonce: NONCE, iss: NRAS_ISSUER, exp: 4102444800 }, kit.world.b.key);
    return withToken(kit, 'a bare JWT under the known key id, signed by another key', jwt);
  }),
];

// The gateway's own verdict on attestations of another time: the sidecar's key and its tokens end, the evidence does not.
import { afterAll, expect, it } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { makeToken, makeTokenKey } from '../../../sidecar/attesters/native/token.ts';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { appraiseEvidence } from '../../../verify/index.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, type RunningSidecar, startSidecar, temporaryFolder } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const root = temporaryFolder();
/** Of the sidecar's clock, against ours. */
let ahead_ms = 0;

/** The twin's evidence under a token that the sidecar signs, as the native attester's are. */
async function signing(): Promise<Attester> {
  const twin = await createSimulatedAttester({ rootDir: root.path });
  const key = makeTokenKey();
  return {
    ...twin,
    token_keys: { keys: [key.public] },
    async attest(nonce: Nonce, signal: AbortSignal) {
      const { evidence } = await twin.attest(nonce, signal);
      const simulatedRoot = twin.simulated?.root ?? '';
      const { claims } = await appraiseEvidence(evidence, { expected: { nonce }, simulatedRoot });
      const now = new Date(Date.now() + ahead_ms);
      const expires = { device: now, driver: now, vbios: now };
      const devices = claims.devices.map((one) => ({ claims: one, expires, fwid_checked: true }));
      return { token: await makeToken(nonce, devices, now, key), evidence };
    },
  };
}

const service = useService({}, { attester: await signing() });
let later: RunningSidecar | null = null;
afterAll(async () => {
  await later?.close();
  root.remove();
});

const verify = async (body: string) => {
  const { status, text } = await ask(`${service.url}/~sev_gpu@1.0/verify`, { body });
  return [status, status === 200 ? text : JSON.parse(text).error.code];
};
const signerOf = async (body: string) => {
  const { checks } = (await ask(`${service.url}/~sev_gpu@1.0/verify?report=1`, { body })).json();
  return checks.find(({ name }: { name: string }) => name === 'token_signature').detail;
};
const attestation = async (seed: number) =>
  JSON.stringify((await chat(service.url, { ...CHAT, tee: true, seed })).json().attestation);
/** A digit of the signature over the whole is another. */
function forged(text: string): string {
  const one = JSON.parse(text);
  const [[kind, overall], devices] = JSON.parse(one.token);
  const other = overall.endsWith('A') ? 'B' : 'A';
  return JSON.stringify({ ...one, token: JSON.stringify([[kind, overall.slice(0, -1) + other], devices]) });
}

it('is the same for an attestation of an hour ago and of a sidecar that has ended', async () => {
  const now = await attestation(1);
  expect(await verify(now)).toEqual([200, 'true']);
  expect(await signerOf(now)).toContain('signed by Countersign');
  ahead_ms = -3_700_000;
  const before = await attestation(2);
  expect(await verify(before)).toEqual([200, 'true']);
  ahead_ms = 0;
  await service.sidecar.close();
  later = await startSidecar(service.folder, { attester: await signing() });
  await eventually(async () => (await chat(service.url, { ...CHAT, tee: true })).status === 200);
  for (const one of [now, before]) expect(await verify(one)).toEqual([200, 'true']);
  expect(await signerOf(now)).toContain('proves nothing by itself');
});

it('is a refusal still where the token is of the running sidecar and was changed', async () => {
  const good = await attestation(3);
  const bad = forged(good);
  expect(bad).not.toBe(good);
  expect(await verify(bad)).toEqual([422, 'token_signature_invalid']);
});

// A genuine H100's evidence through native's own appraisal, with NVIDIA's RIMs and OCSP responses served locally and the
// clock handed in: what the twin cannot show, that real silicon's words pass.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Nonce } from '../../../../proto/attestation/raw.ts';
import { createAppraiser } from '../../../../sidecar/attesters/native/appraise.ts';
import { createStore } from '../../../../sidecar/attesters/native/kept-collateral.ts';
import { createNativeAttester, type NativeAttester } from '../../../../sidecar/attesters/native/native.ts';
import type { Collector } from '../../../../sidecar/driver/gpu-collector.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { toHex } from '../../../../verify/common/bytes.ts';
import { rimRoots } from '../../../../verify/gpu/nvidia.ts';
import { verifyRim } from '../../../../verify/gpu/rim/rim.ts';
import { createCollateral } from '../../../../verify/index.ts';
import { checkTokenDigests } from '../../../../verify/token/digests.ts';
import { verifyTokenSignature } from '../../../../verify/token/signature.ts';
import { parseToken } from '../../../../verify/token/token.ts';
import { parsePem } from '../../../../verify/x509/certificate.ts';
import { makeCertId, parseOcspResponse } from '../../../../verify/x509/ocsp.ts';
import { never } from '../../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { vectorsPresent } from '../../../support/vectors.ts';
import { readOcspRequest } from '../../../twin/ocsp-request.ts';
import { CLOCKS, chainText, H100, h100, h100Rims, ocspResponses } from '../../../verify/gpu/genuine.ts';

const NONCE = '931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb' as Nonce;

const evidence = () => {
  const { arch, evidence: report, certificate: certificate_chain } = h100();
  return [{ arch, report, certificate_chain }];
};

/** An answer of 2025 carries the nonce of a request of 2025; from before a restart, it is believed without one. */
async function keepOcsp(folder: string): Promise<void> {
  const store = createStore({ folder });
  const signers = [...h100Rims().values()].map((rim) => verifyRim(rim, { roots: rimRoots(), at: CLOCKS.rim }));
  for (const path of [parsePem(chainText(H100)), ...(await Promise.all(signers)).map(({ signer }) => signer)])
    for (const [i, issuer] of path.slice(1).entries()) {
      const certificate = path[i];
      const answer = ocspResponses().find((der) =>
        parseOcspResponse(der).responses.some(({ certId }) => certId.serial === certificate?.serial),
      );
      if (certificate !== undefined && answer !== undefined)
        await store.write('ocsp', toHex(await makeCertId(certificate, issuer)), answer);
    }
}

/** NVIDIA's services as they answered: each RIM by its id, each OCSP response by the serial number it is about. */
async function startServices(asked: string[]): Promise<Server> {
  const rims = h100Rims();
  const answers = new Map(
    ocspResponses().flatMap((der) =>
      parseOcspResponse(der).responses.map(({ certId }) => [certId.serial, der] as const),
    ),
  );
  const server = createServer(async (request, response) => {
    const id = /^\/v1\/rim\/(.+)$/.exec(request.url ?? '')?.[1];
    asked.push(id ?? 'ocsp');
    const rim = rims.get(id ?? '');
    if (rim !== undefined) return void response.end(JSON.stringify({ id, rim: Buffer.from(rim).toString('base64') }));
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { serial } = readOcspRequest(Buffer.concat(chunks));
    const answer = answers.get(BigInt(`0x${serial.toString('hex')}`));
    response.writeHead(answer === undefined ? 404 : 200).end(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

describe.skipIf(!vectorsPresent)('a genuine H100 through native', () => {
  const asked: string[] = [];
  let server: Server;
  let folder: Folder;
  let attester: NativeAttester;

  const collector: Collector = {
    devices: [{ arch: 'HOPPER', model: 'NVIDIA H100' }],
    collect: async () => evidence(),
    renewChains: async () => false,
    close: async () => {},
  };

  const create = (cache_dir: string) => {
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return createNativeAttester({
      collector,
      cache_dir,
      rim_url: base,
      ocsp_url: `${base}/ocsp`,
      clocks: CLOCKS,
      warm: false,
    });
  };

  beforeAll(async () => {
    server = await startServices(asked);
    folder = temporaryFolder();
    await keepOcsp(folder.path);
    attester = await create(folder.path);
  });
  afterAll(async () => {
    await attester?.close();
    server?.closeAllConnections();
    server?.close();
    folder?.remove();
  });

  test('valid: 33 measurements, and a token that verifies as ours', async () => {
    const collected = await attester.attest(NONCE, never);
    await checkCollected(collected, NONCE, attester);
    const parsed = parseToken(collected.token);
    expect(parsed.devices).toMatchObject([
      { driver: '550.90.07', vbios: '96.00.9F.00.01', hwmodel: 'GH100 A01 GSP BROM', measres: 'success' },
    ]);
    expect((await checkTokenDigests(parsed)).rechecked).toBe(1);
    const verified = await verifyTokenSignature(parsed, { countersignKeys: attester.token_keys, at: new Date() });
    expect(verified.signature).toBe('countersign-signed');
    expect(asked.sort()).toEqual([...h100Rims().keys()].sort());
  });

  test('33 measurements have their reference values, and each chain ends when its first certificate does', async () => {
    const collateral = createCollateral({ rims: h100Rims(), ocsp: ocspResponses() });
    const appraise = createAppraiser({ collateral, clock: () => new Date(), clocks: CLOCKS });
    const [device] = await appraise(NONCE, evidence());
    expect(device?.claims).toMatchObject({ chip: 'GH100', measurements_matched: 33 });
    expect(device?.fwid_checked).toBe(true);
    expect(Object.entries(device?.expires ?? {}).map(([what, end]) => [what, end?.toISOString()])).toEqual([
      ['device', '9999-12-31T23:59:59.000Z'],
      ['driver', '2026-06-01T02:08:29.000Z'],
      ['vbios', '2026-02-22T23:17:58.000Z'],
    ]);
  });

  test("a responder that repeats an old answer is not believed: it is not over our request's nonce", async () => {
    const other = await create(join(folder.path, 'empty'));
    await expect(other.attest(NONCE, never)).rejects.toMatchObject({
      code: 'appraisal_failed',
      retryable: false,
      message: expect.stringMatching(/^revocation_invalid: GPU 0: .*its nonce is another$/),
    });
    await other.close();
  });

  test('evidence over another nonce is refused', async () => {
    await expect(attester.attest('ab'.repeat(32) as Nonce, never)).rejects.toThrow(/^report_nonce_mismatch: /);
  });
});

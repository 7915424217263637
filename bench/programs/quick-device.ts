// A simulated GPU that signs at the cost of a hash: the public-key half of each ECDSA signature is done once. Its reports verify like
// any other's. One ephemeral key for all of them gives the device's key away (FIPS 186-5 §6.3), which is nobody's: for the bench alone.
import { createECDH, hash } from 'node:crypto';
import { TWIN } from '../../demo/twin/identity.ts';
import { chainPem, loadOrMakeRoot, makeDevice, makeIssuers } from '../../demo/twin/pki.ts';
import { makeReport } from '../../demo/twin/report.ts';
import { makeToken } from '../../demo/twin/token.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { Attester } from '../../sidecar/common/attester.ts';

/** The order of P-384 (SEC 2, §2.5.1). */
const ORDER = 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n;
const SIZE_BYTES = 48;
/** Of the report. */
const NONCE_AT = 4;

export async function createQuickAttester(rootDir: string): Promise<Attester> {
  const root = await loadOrMakeRoot(rootDir);
  const device = makeDevice(makeIssuers(root));
  const certificate_chain = Buffer.from(chainPem(device)).toString('base64');
  const report = await makeReport(Buffer.alloc(32), device.key);
  const sign = signer(Buffer.from(device.key.export({ format: 'jwk' }).d ?? '', 'base64url'));
  const signed = report.subarray(0, report.length - 2 * SIZE_BYTES);
  return {
    name: 'simulated',
    devices: [{ arch: TWIN.arch, model: TWIN.model }],
    simulated: { root: root.certificate.pem },
    async attest(nonce: Nonce) {
      report.write(nonce, NONCE_AT, 'hex');
      report.set(sign(signed), signed.length);
      const evidence = [{ arch: TWIN.arch, report: report.toString('base64'), certificate_chain }];
      return { token: makeToken(nonce, [device], new Date()), evidence };
    },
    async close() {},
  };
}

/** ECDSA over SHA-384 (FIPS 186-5 §6.4.1), r ‖ s. */
function signer(privateKey: Buffer): (data: Uint8Array) => Buffer {
  const d = read(privateKey);
  const ephemeral = createECDH('secp384r1');
  // An uncompressed point: 4, x, y.
  const r = read(ephemeral.generateKeys().subarray(1, 1 + SIZE_BYTES)) % ORDER;
  const inverse = power(read(ephemeral.getPrivateKey()), ORDER - 2n);
  const both = Buffer.alloc(2 * SIZE_BYTES);
  write(r, both, 0);
  return (data) => {
    const digest = BigInt(`0x${hash('sha384', data)}`);
    write((inverse * (digest + r * d)) % ORDER, both, SIZE_BYTES);
    return both;
  };
}

/** `base` to the power of `exponent`, modulo the order. */
function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let left = exponent, square = base; left > 0n; left >>= 1n, square = (square * square) % ORDER)
    if ((left & 1n) === 1n) result = (result * square) % ORDER;
  return result;
}

const read = (bytes: Uint8Array): bigint => BigInt(`0x${Buffer.from(bytes).toString('hex')}`);

function write(value: bigint, into: Buffer, at: number): void {
  into.write(value.toString(16).padStart(2 * SIZE_BYTES, '0'), at, 'hex');
}

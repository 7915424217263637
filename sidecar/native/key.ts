// The key that signs this process's tokens: ES384, made at start, never written anywhere. Its public half is in `hello`.
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { promisify } from 'node:util';

/** As the gateway needs it: RFC 7517, RFC 7518 §6.2. */
export interface PublicKey {
  readonly kty: 'EC';
  readonly crv: 'P-384';
  readonly x: string;
  readonly y: string;
  readonly kid: string;
  readonly alg: 'ES384';
  readonly use: 'sig';
}

export interface TokenKey {
  readonly public: PublicKey;
  /** RFC 7515 compact serialization of the claims. */
  sign(claims: object): Promise<string>;
}

const signAsync = promisify<string, Uint8Array, { key: KeyObject; dsaEncoding: 'ieee-p1363' }, Buffer>(sign);

export function makeTokenKey(): TokenKey {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const kid = thumbprint(x, y);
  const header = base64url({ alg: 'ES384', typ: 'JWT', kid });
  return {
    public: { kty: 'EC', crv: 'P-384', x, y, kid, alg: 'ES384', use: 'sig' },
    async sign(claims) {
      const input = `${header}.${base64url(claims)}`;
      const signature = await signAsync('sha384', Buffer.from(input), { key: privateKey, dsaEncoding: 'ieee-p1363' });
      return `${input}.${signature.toString('base64url')}`;
    },
  };
}

/** RFC 7638: the members that make the key, in this order. */
function thumbprint(x: string, y: string): string {
  return createHash('sha256')
    .update(JSON.stringify({ crv: 'P-384', kty: 'EC', x, y }))
    .digest('base64url');
}

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

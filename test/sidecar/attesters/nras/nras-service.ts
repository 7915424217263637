// A stand-in for NVIDIA's Remote Attestation Service: checks what it is asked, answers with a detached EAT under a test key.
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parseReport } from '../../../../verify/gpu/spdm/report.ts';
import { parsePem } from '../../../../verify/x509/certificate.ts';

export interface NrasFaults {
  /** Answered in place of a token. */
  status: number | 'cut' | null;
  body: string;
  retry_after: string | null;
  delay_ms: number;
  /** What the token says. */
  result: boolean;
  nonce: string | null;
  issuer: string;
  ueid: string | null;
  expired: boolean;
  break_signature: boolean;
  break_digest: boolean;
  /** The key that signs is not in the key set. */
  unknown_key: boolean;
  /** The key set cannot be had. */
  no_keys: boolean;
}

export const noNrasFaults = (): NrasFaults => ({
  status: null,
  body: '{}',
  retry_after: null,
  delay_ms: 0,
  result: true,
  nonce: null,
  issuer: 'https://nras.attestation.nvidia.com',
  ueid: null,
  expired: false,
  break_signature: false,
  break_digest: false,
  unknown_key: false,
  no_keys: false,
});

export interface NrasService {
  /** For `createNrasAttester`. */
  readonly url: string;
  readonly faults: NrasFaults;
  readonly asked: { attest: number; keys: number; authorization: string | undefined; body: Record<string, unknown> };
  /** From now on another key signs. */
  rotate(): void;
  close(): Promise<void>;
}

interface Question {
  readonly nonce: string;
  readonly claims_version: string;
  readonly evidence_list: readonly { readonly evidence: string; readonly certificate: string }[];
}

interface Key {
  readonly kid: string;
  readonly private: KeyObject;
  readonly jwk: object;
}

function makeKey(kid: string): Key {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  return { kid, private: privateKey, jwk: { ...publicKey.export({ format: 'jwk' }), kid, alg: 'ES384', use: 'sig' } };
}

export async function startNras(): Promise<NrasService> {
  const faults = noNrasFaults();
  const asked: NrasService['asked'] = { attest: 0, keys: 0, authorization: undefined, body: {} };
  const keys = [makeKey('test-1')];

  function token(question: Question): string {
    const key = faults.unknown_key ? makeKey('unknown') : (keys.at(-1) ?? makeKey('none'));
    const iat = Math.floor(Date.now() / 1000) - (faults.expired ? 7200 : 0);
    const eat_nonce = faults.nonce ?? question.nonce;
    const common = { iss: faults.issuer, iat, nbf: iat, exp: iat + 3600, eat_nonce };
    const parts = question.evidence_list.map((one, i): [string, string] => [`GPU-${i}`, jwt(deviceClaims(one), key)]);
    const digest = (text: string) =>
      createHash('sha256')
        .update(faults.break_digest ? `${text} ` : text)
        .digest('hex');
    const overall = {
      sub: 'NVIDIA-PLATFORM-ATTESTATION',
      'x-nvidia-ver': question.claims_version,
      'x-nvidia-overall-att-result': faults.result,
      submods: Object.fromEntries(parts.map(([name, text]) => [name, ['DIGEST', ['SHA-256', digest(text)]]])),
      ...common,
    };
    return JSON.stringify([['JWT', jwt(overall, key)], Object.fromEntries(parts)]);

    function deviceClaims({ evidence, certificate }: Question['evidence_list'][number]): object {
      const { opaque } = parseReport(Buffer.from(evidence, 'base64'));
      const [leaf, above] = parsePem(Buffer.from(certificate, 'base64').toString());
      return {
        ...common,
        measres: faults.result ? 'success' : 'fail',
        ueid: faults.ueid ?? leaf?.serial.toString(),
        hwmodel: above?.subjectCommonName,
        secboot: true,
        dbgstat: 'disabled',
        'x-nvidia-gpu-driver-version': opaque.driverVersion,
        'x-nvidia-gpu-vbios-version': opaque.vbiosVersion,
      };
    }
  }

  function jwt(claims: object, { kid, private: key }: Key): string {
    const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const input = `${encode({ kid, alg: 'ES384' })}.${encode(claims)}`;
    const signed = faults.break_signature ? `${input}.` : input;
    const signature = sign('sha384', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' });
    return `${input}.${signature.toString('base64url')}`;
  }

  async function attest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    asked.attest++;
    asked.authorization = request.headers.authorization;
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    asked.body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
    if (faults.delay_ms > 0) await new Promise((resolve) => setTimeout(resolve, faults.delay_ms));
    if (faults.status === 'cut') return void response.destroy();
    if (faults.retry_after !== null) response.setHeader('retry-after', faults.retry_after);
    if (faults.status !== null) return void response.writeHead(faults.status).end(faults.body);
    response.writeHead(200, { 'content-type': 'application/json' }).end(token(asked.body as unknown as Question));
  }

  const server = createServer((request, response) => {
    if (request.method === 'POST' && request.url === '/v4/attest/gpu') return void attest(request, response);
    if (request.url !== '/.well-known/jwks.json') return void response.writeHead(404).end();
    asked.keys++;
    if (faults.no_keys) return void response.writeHead(503).end();
    response.end(JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v4/attest/gpu`,
    faults,
    asked,
    rotate: () => void keys.push(makeKey(`test-${keys.length + 1}`)),
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

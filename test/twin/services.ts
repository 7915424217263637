// NVIDIA's two services as the twin's own, over HTTP: reference manifests by id, and certificate status by OCSP.
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Certificate, Holder } from '../../demo/twin/certificate.ts';
import type { Device, Issuers } from '../../demo/twin/pki.ts';
import type { Faults } from './faults.ts';
import { H100, type Model } from './models.ts';
import { makeOcspResponse, makeResponder, type OcspAnswer } from './ocsp.ts';
import { readOcspRequest } from './ocsp-request.ts';
import type { RimSigner } from './rim-signer.ts';

export interface Services {
  /** Both as `RIM_URL` and `OCSP_URL` take them. */
  readonly rim_url: string;
  readonly ocsp_url: string;
  /** Requests served, by kind. */
  readonly served: { readonly rim: number; readonly ocsp: number };
  close(): Promise<void>;
}

export interface Authorities {
  /** One for each kind of device. */
  readonly issuers: readonly Issuers[];
  readonly devices: readonly Device[];
  readonly rim: RimSigner;
  /** Whose manifests there are; an H100's by default. */
  readonly models?: readonly Model[];
}

const DAY_MS = 86_400_000;

export async function startServices(authorities: Authorities, faults: Faults): Promise<Services> {
  const { models = [H100] } = authorities;
  const manifests = new Map<string, string>(models.flatMap((model) => model.manifests(authorities.rim)));
  const known = certificatesBySerial(authorities);
  const served = { rim: 0, ocsp: 0 };

  function rim(id: string, response: ServerResponse): void {
    served.rim++;
    const manifest = manifests.get(id);
    if (faults.rim === 'cut') return void response.destroy();
    const status = faults.rim ?? (manifest === undefined ? 404 : 200);
    if (status !== 200 || manifest === undefined) return json(response, status, { message: 'no such RIM' });
    const text = faults.rim_broken_signature ? manifest.replace('size="48"', 'size="048"') : manifest;
    const bytes = Buffer.from(text);
    const sha256 = createHash('sha256').update(bytes).digest('base64');
    json(response, 200, { id, rim: bytes.toString('base64'), sha256, last_updated: '2026-01-01', request_id: 'twin' });
  }

  function ocsp(body: Buffer, response: ServerResponse): void {
    served.ocsp++;
    const fault = faults.ocsp;
    if (fault === 'cut') return void response.destroy();
    if (typeof fault === 'number') return json(response, fault, {});
    const { serial, nonce } = readOcspRequest(body);
    const found = known.get(serial.toString('hex'));
    if (found === undefined) return json(response, 500, { message: 'the twin issued no such certificate' });
    response.setHeader('content-type', 'application/ocsp-response');
    response.end(makeOcspResponse(answerTo(found, nonce, fault)));
  }

  const server = createServer(async (request, response) => {
    const rimId = /^\/v1\/rim\/([^/]+)$/.exec(request.url ?? '')?.[1];
    if (request.method === 'GET' && rimId !== undefined) return rim(rimId, response);
    if (request.method === 'POST' && /^\/ocsp\/?$/.test(request.url ?? ''))
      return ocsp(await bodyOf(request), response);
    json(response, 404, {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    rim_url: base,
    ocsp_url: `${base}/ocsp`,
    served,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

interface Known {
  readonly certificate: Certificate;
  readonly issuer: Holder;
  readonly responder: Holder;
  readonly expiredResponder: Holder;
}

function certificatesBySerial({ issuers, devices, rim }: Authorities): Map<string, Known> {
  const pairs: (readonly [Certificate, Holder])[] = [
    ...issuers.flatMap(({ provisioner, identity, root }) => [
      [provisioner.certificate, identity] as const,
      [identity.certificate, root] as const,
    ]),
    [rim.signer.certificate, rim.intermediate],
    [rim.intermediate.certificate, rim.ca],
    [rim.ca.certificate, rim.root],
    ...devices.flatMap(({ chain, brom }) => [
      [chain[0], brom] as const,
      [chain[1], provisionerOf(chain[2], issuers)] as const,
    ]),
  ];
  const yesterday = new Date(Date.now() - DAY_MS);
  return new Map(
    pairs.map(([certificate, issuer]) => [
      certificate.serial.toString('hex'),
      {
        certificate,
        issuer,
        responder: makeResponder(issuer),
        expiredResponder: makeResponder(issuer, { notAfter: yesterday }),
      },
    ]),
  );
}

function provisionerOf(certificate: Certificate, issuers: readonly Issuers[]): Holder {
  const found = issuers.find(({ provisioner }) => provisioner.certificate.der.equals(certificate.der));
  if (found === undefined) throw new Error('a device of an issuer that is not among them');
  return found.provisioner;
}

function answerTo(known: Known, nonce: Buffer | null, fault: Faults['ocsp']): OcspAnswer {
  const now = Date.now();
  const until = fault === 'expired' ? now - DAY_MS : now + DAY_MS;
  return {
    certificate: known.certificate,
    issuer: known.issuer.certificate,
    responder: fault === 'responder_expired' ? known.expiredResponder : known.responder,
    status: fault === 'unknown' || typeof fault === 'object' ? fault : 'good',
    thisUpdate: new Date(until - DAY_MS),
    nextUpdate: new Date(until),
    ...(nonce === null || fault === 'no_nonce' ? {} : { nonce }),
    breakSignature: fault === 'broken_signature',
  };
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

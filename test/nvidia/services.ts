// NVIDIA's RIM and OCSP services as NVIDIA's verifier sees them, answered from genuine documents on a loopback port.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toHex } from '../../verify/common/bytes.ts';
import { expectTag, integer, readOne, sequence } from '../../verify/x509/der.ts';
import { parseOcspResponse } from '../../verify/x509/ocsp.ts';

export interface Documents {
  /** RIM documents by id. Any other id is a 404. */
  readonly rims: ReadonlyMap<string, Buffer>;
  /** OCSP responses, DER. */
  readonly ocsp: readonly Buffer[];
  /** For a certificate that none of them is about: a genuine response about another one. */
  readonly standIn?: (serial: bigint) => Buffer | null;
}

export interface Services {
  /** For NV_RIM_URL: what the id is appended to. */
  readonly rimUrl: string;
  /** For NV_OCSP_URL. */
  readonly ocspUrl: string;
  /** Serial numbers, in hex, of certificates that a stand-in was served for. */
  readonly stoodIn: ReadonlySet<string>;
  close(): Promise<void>;
}

const MAX_REQUEST_BYTES = 64 * 1024;

export async function startServices({ rims, ocsp, standIn }: Documents): Promise<Services> {
  const bySerial = new Map(ocsp.map((der) => [serialOf(der), der]));
  const stoodIn = new Set<string>();

  function answer(serial: bigint): Buffer | null {
    const own = bySerial.get(serial);
    if (own !== undefined) return own;
    const other = standIn?.(serial) ?? null;
    if (other !== null) stoodIn.add(serial.toString(16));
    return other;
  }

  const server = createServer(async (request, response) => {
    const body: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of request) {
      bytes += (chunk as Buffer).length;
      if (bytes > MAX_REQUEST_BYTES) return response.writeHead(413).end();
      body.push(chunk as Buffer);
    }
    if (request.method === 'POST') {
      const der = answer(requestedSerial(Buffer.concat(body)));
      return der === null ? response.writeHead(404).end() : response.end(der);
    }
    const rim = rims.get(decodeURIComponent(request.url?.split('/').at(-1) ?? ''));
    if (rim === undefined) return response.writeHead(404).end();
    return response.end(JSON.stringify({ rim: rim.toString('base64') }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    rimUrl: `http://127.0.0.1:${port}/v1/rim/`,
    ocspUrl: `http://127.0.0.1:${port}/`,
    stoodIn,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** The certificate that a response is about. */
export function serialOf(der: Uint8Array): bigint {
  const [first] = parseOcspResponse(der).responses;
  if (first === undefined) throw new TypeError(`a response about nothing: ${toHex(der)}`);
  return first.certId.serial;
}

/** OCSPRequest { tbsRequest { requestList { Request { CertID { algorithm, name hash, key hash, serial } } } } } */
function requestedSerial(der: Uint8Array): bigint {
  const [request] = sequence(readOne(der));
  // [0] version may come first.
  const list = sequence(request).find(({ tag }) => tag === 0x30);
  const [certId] = sequence(sequence(list)[0]);
  return integer(expectTag(sequence(certId)[3], 0x02));
}

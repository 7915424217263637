// Reads what an OCSP request asks (RFC 6960 §4.1.1): the serial number of its one certificate, and its nonce.

export interface OcspRequest {
  /** Big-endian, without a sign octet. */
  readonly serial: Buffer;
  readonly nonce: Buffer | null;
}

interface Value {
  readonly tag: number;
  readonly content: Buffer;
}

const ID_PKIX_OCSP_NONCE = Buffer.from('2b0601050507300102', 'hex');
const EXTENSIONS = 0xa2;

/** @throws when it is not one, or asks about several certificates. */
export function readOcspRequest(der: Buffer): OcspRequest {
  const [request] = values(der);
  const [tbs] = values(content(request));
  const parts = values(content(tbs));
  const list = parts.find(({ tag }) => tag === 0x30);
  const requests = values(content(list));
  if (requests.length !== 1) throw new Error(`an OCSP request for ${requests.length} certificates`);
  const [certId] = values(content(requests[0]));
  const [, , , serial] = values(content(certId));
  return { serial: withoutSign(content(serial)), nonce: nonceIn(parts.find(({ tag }) => tag === EXTENSIONS)) };
}

function nonceIn(extensions: Value | undefined): Buffer | null {
  if (extensions === undefined) return null;
  const [list] = values(extensions.content);
  for (const extension of values(content(list))) {
    const [id, ...rest] = values(extension.content);
    if (!id?.content.equals(ID_PKIX_OCSP_NONCE)) continue;
    const [nonce] = values(content(rest.at(-1)));
    return content(nonce);
  }
  return null;
}

function values(bytes: Buffer): Value[] {
  const found: Value[] = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes.readUInt8(at);
    let length = bytes.readUInt8(at + 1);
    at += 2;
    if (length >= 0x80) {
      const octets = length & 0x7f;
      length = bytes.readUIntBE(at, octets);
      at += octets;
    }
    if (at + length > bytes.length) throw new Error('a DER value runs over its end');
    found.push({ tag, content: bytes.subarray(at, at + length) });
    at += length;
  }
  return found;
}

function content(value: Value | undefined): Buffer {
  if (value === undefined) throw new Error('a DER value is missing');
  return value.content;
}

const withoutSign = (integer: Buffer): Buffer => (integer[0] === 0 ? integer.subarray(1) : integer);

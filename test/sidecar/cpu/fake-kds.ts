// What AMD's key service has of a processor that is made here, and the certificate table that its host has.
import { type Holder, pem } from '../../../demo/twin/authority.ts';
import { type Amd, amdCrl, CHIP_ID } from '../../../demo/twin/snp.ts';
import type { Answer } from './fake-service.ts';

export const LEAF = `/vcek/v1/Genoa/${CHIP_ID.toString('hex')}?blSPL=9&teeSPL=1&snpSPL=27&ucodeSPL=84`;
export const CHAIN = '/vcek/v1/Genoa/cert_chain';
export const CRL = '/vcek/v1/Genoa/crl';

const GUID = {
  vcek: '63da758de6644564adc5f4b93be8accd',
  vlek: 'a8074bc2a25a483eaae639c045a0b8a1',
  ask: '4ab7b379bbac4fe4a02f05aef327c782',
  ark: 'c0b406a4a803495297433fb6014cd0ae',
  other: '00000000000000000000000000000001',
};

/** The certificate table of a host. */
export function tableOf(...entries: readonly (readonly [guid: keyof typeof GUID, bytes: Buffer])[]): Buffer {
  let at = (entries.length + 1) * 24;
  const heads = entries.map(([guid, { length }]) => {
    const head = Buffer.alloc(24);
    head.write(GUID[guid], 'hex');
    head.writeUInt32LE(at, 16);
    head.writeUInt32LE(length, 20);
    at += length;
    return head;
  });
  return Buffer.concat([...heads, Buffer.alloc(24), ...entries.map(([, bytes]) => bytes)]);
}

/** What the service has of a product whose processor's leaf is `own`. */
export const serve = ({ product, ask, ark }: Amd, own: Holder): Record<string, Answer> => ({
  [LEAF]: own.der,
  [`/vcek/v1/${product}/cert_chain`]: Buffer.from(pem(ask, ark)),
  [`/vcek/v1/${product}/crl`]: amdCrl({ ark }),
});

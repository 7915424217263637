// The keys that the vectors are signed with: read from a folder, or made and kept there. Test keys, worth nothing.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Certificate, Holder } from '../../demo/twin/certificate.ts';
import { parseCertificate } from '../../verify/x509/certificate.ts';

/** Gives the holder of that name, by `make` where there is none yet. */
export type Keep = (name: string, make: () => Holder) => Holder;

/** For tests: nothing is kept. */
export const keepNothing: Keep = (_name, make) => make();

/** `NAME.pem` in `folder`: the private key and its certificate. */
export function keepIn(folder: string): Keep {
  mkdirSync(folder, { recursive: true });
  return (name, make) => {
    const file = join(folder, `${name}.pem`);
    if (existsSync(file)) return holderOf(readFileSync(file, 'utf8'));
    const made = make();
    writeFileSync(file, `${made.key.export({ type: 'pkcs8', format: 'pem' })}${made.certificate.pem}`);
    return made;
  };
}

function holderOf(text: string): Holder {
  return { key: createPrivateKey(text), certificate: certificateOf(text.slice(text.indexOf('-----BEGIN CERT'))) };
}

/** As the twin's makers hold it, from its PEM. */
export function certificateOf(pem: string): Certificate {
  const parsed = new X509Certificate(pem);
  const subject = Buffer.from(parseCertificate(parsed.raw).subject);
  const serial = Buffer.from(parsed.serialNumber, 'hex');
  return { der: parsed.raw, pem: parsed.toString(), subject, serial, publicKey: parsed.publicKey };
}

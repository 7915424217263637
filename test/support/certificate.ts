// A server certificate for 127.0.0.1 and localhost, made for one test.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as der from '../../demo/twin/certificate.ts';
import { issue, newKey } from '../../demo/twin/certificate.ts';

const HOUR_MS = 3_600_000;

/** Writes `tls.crt` and `tls.key` into a folder. @returns the certificate as PEM, which a client trusts, and the paths. */
export function writeCertificate(folder: string, serial = 1): { pem: string; certFile: string; keyFile: string } {
  const { key, publicKey } = newKey();
  const names = der.sequence(
    der.contextPrimitive(2, Buffer.from('localhost')),
    der.contextPrimitive(7, Buffer.of(127, 0, 0, 1)),
  );
  const subject = der.sequence(der.set(der.sequence(der.oid('2.5.4.3'), der.utf8String('localhost'))));
  const { pem } = issue(
    {
      subject,
      serial: Buffer.of(serial),
      notBefore: new Date(Date.now() - HOUR_MS),
      notAfter: new Date(Date.now() + HOUR_MS),
      extensions: [der.sequence(der.oid('2.5.29.17'), der.octetString(names))],
    },
    publicKey,
    { selfKey: key },
  );
  const certFile = join(folder, 'tls.crt');
  const keyFile = join(folder, 'tls.key');
  writeFileSync(certFile, pem);
  writeFileSync(keyFile, key.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
  return { pem, certFile, keyFile };
}

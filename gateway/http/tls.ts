// TLS, with a certificate and key from two files that are read again when they change.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import type { SecureContextOptions } from 'node:tls';
import { ConfigError, type TlsFiles } from '../base/config.ts';

/** The options of Node's TLS server. */
export type Credentials = SecureContextOptions & { readonly honorCipherOrder: boolean };

/** TLS 1.3, and only those ciphers of TLS 1.2 that authenticate and have forward secrecy (RFC 9325 §4.2). */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
];
const WATCH_MS = 5_000;

/** @throws {ConfigError} a file cannot be read, or the two do not belong together. */
export function readCredentials(files: TlsFiles): Credentials {
  const cert = read('TLS_CERT_FILE', files.tls_cert_file);
  const key = read('TLS_KEY_FILE', files.tls_key_file);
  return credentialsOf(cert, key, ['TLS_CERT_FILE', 'TLS_KEY_FILE']);
}

/** @param names of the two, for the error. @throws {ConfigError} the two do not belong together. */
export function credentialsOf(
  cert: string | Buffer,
  key: string | Buffer,
  [certName, keyName]: readonly [string, string],
): Credentials {
  let matches: boolean;
  try {
    matches = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch (cause) {
    throw new ConfigError(`${certName} and ${keyName} must be a PEM certificate and its PEM key`, { cause });
  }
  if (!matches) throw new ConfigError(`${keyName} is not the key of the certificate in ${certName}`);
  return { cert, key, minVersion: 'TLSv1.2', ciphers: CIPHERS.join(':'), honorCipherOrder: true };
}

/** Calls `changed` when either file has been written or replaced. @returns a function that stops watching. */
export function watchCredentials(files: TlsFiles, changed: () => void, every_ms = WATCH_MS): () => void {
  const paths = [files.tls_cert_file, files.tls_key_file];
  for (const path of paths) watchFile(path, { interval: every_ms, persistent: false }, changed);
  return () => {
    for (const path of paths) unwatchFile(path, changed);
  };
}

function read(variable: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new ConfigError(`${variable} cannot be read: ${(cause as NodeJS.ErrnoException).code}`, { cause });
  }
}

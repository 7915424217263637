// The unit of what a proof costs: CPU of one ECDSA signature over P-384 with SHA-384, made and checked.
import { generateKeyPairSync, randomBytes, sign, verify } from 'node:crypto';

const TIMES = 200;

/** CPU of all threads of this process, in microseconds for each. */
export function p384_us(): { readonly check: number; readonly sign: number } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const data = randomBytes(1_024);
  let signature = sign('sha384', data, privateKey);
  const each = (act: () => void) => {
    for (let i = 0; i < TIMES / 10; i++) act();
    const before = process.cpuUsage();
    for (let i = 0; i < TIMES; i++) act();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / TIMES;
  };
  return {
    sign: each(() => {
      signature = sign('sha384', data, privateKey);
    }),
    check: each(() => {
      if (!verify('sha384', data, publicKey, signature)) throw new Error('a good signature is refused');
    }),
  };
}

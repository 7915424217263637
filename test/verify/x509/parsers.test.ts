// Everything that reads bytes from others: it reads the genuine ones, and refuses what is cut short or changed with a code.
import { generateKeyPairSync, sign } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { fromHex } from '../../../verify/common/bytes.ts';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { deviceRoots, fwidOf, rimRoots } from '../../../verify/gpu/nvidia.ts';
import { parseOpaque } from '../../../verify/gpu/spdm/opaque.ts';
import { parseReport, verifyReportSignature } from '../../../verify/gpu/spdm/report.ts';
import { type Certificate, parseCertificate, parsePem } from '../../../verify/x509/certificate.ts';
import { ChainError, verifyChain } from '../../../verify/x509/chain.ts';
import { DerError, oid, readOne, sequence } from '../../../verify/x509/der.ts';
import { OcspRefusal, parseOcspResponse } from '../../../verify/x509/ocsp.ts';
import { ecdsaVerify } from '../../../verify/x509/public-key.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { chainText, ocspResponses, reportBytes, text } from '../gpu/genuine.ts';

const AT = new Date('2025-09-01T00:00:00Z');
const FOLDERS = ['h100-550.90.07', 'h100-545.00', 'h100-535.86.09', 'blackwell-575.32', 'switch-ls10'] as const;

/** Runs `read` on every truncation, and on `count` single-bit changes spread over the bytes. */
function spoil(
  bytes: Uint8Array,
  read: (bytes: Uint8Array) => unknown,
  codes: readonly (new (...args: never[]) => Error)[],
) {
  const coded = (at: number, input: Uint8Array, mustFail: boolean) => {
    try {
      read(input);
    } catch (error) {
      expect([at, codes.some((code) => error instanceof code), error]).toEqual([at, true, error]);
      return;
    }
    expect([at, mustFail]).toEqual([at, false]);
  };
  for (let length = 0; length < bytes.length; length++) coded(length, bytes.slice(0, length), true);
  for (let at = 0; at < bytes.length; at++) {
    const changed = Uint8Array.from(bytes);
    changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8));
    coded(at, changed, false);
  }
  coded(-1, Uint8Array.from([...bytes, 0]), true);
}

describe('pinned roots', () => {
  test('are the ones with the published fingerprints', async () => {
    const prints = await Promise.all(
      [...deviceRoots(), ...rimRoots()].map(async ({ der }) =>
        Buffer.from(await crypto.subtle.digest('SHA-256', Uint8Array.from(der))).toString('hex'),
      ),
    );
    expect(prints.map((print) => print.slice(0, 16))).toEqual(['102bf659d5419614', '12977b5115acb038']);
  });

  test.skipIf(!vectorsPresent)('are the ones in the genuine data', () => {
    expect(deviceRoots().map(({ der }) => der)).toEqual(
      parsePem(text('roots/device-identity-root.pem')).map(({ der }) => der),
    );
    expect(rimRoots().map(({ der }) => der)).toEqual(parsePem(text('roots/rim-root.pem')).map(({ der }) => der));
  });
});

describe('DER', () => {
  test.each([
    ['an indefinite length', '3080'],
    ['a length not in its shortest form', '308101'],
    ['a long length with a leading zero', '30820001'],
    ['a length beyond the end', '3003'],
    ['a tag of several bytes', '1f8100'],
    ['a length of more than four bytes', '308500000000010000000000'],
    ['bytes after the value', '050000'],
    ['nothing', ''],
  ])('refuses %s', (_name, hex) => {
    expect(() => readOne(fromHex(hex))).toThrow(DerError);
  });

  test('reads object identifiers of every root', () => {
    expect(oid(readOne(fromHex('06052b81040022')))).toBe('1.3.132.0.34');
    expect(oid(readOne(fromHex('0603883703')))).toBe('2.999.3');
    for (const hex of ['0600', '060180', '06022b80', '0603802b01'])
      expect(() => oid(readOne(fromHex(hex)))).toThrow(DerError);
  });
});

describe.skipIf(!vectorsPresent)('certificates', () => {
  test.each(FOLDERS)('the genuine chain of %s verifies with its root and without', async (folder) => {
    const chain = parsePem(chainText(folder));
    const whole = await verifyChain(chain, deviceRoots(), AT);
    expect(whole).toHaveLength(5);
    expect(await verifyChain(chain.slice(0, -1), deviceRoots(), AT)).toEqual(whole);
    expect(whole.at(-1)).toBe(deviceRoots()[0]);
  });

  const reason = async (chain: readonly Certificate[], roots = deviceRoots(), at = AT) =>
    verifyChain(chain, roots, at).then(
      () => 'valid',
      (error: unknown) => (error instanceof ChainError ? error.reason : error),
    );

  test('a root taken from the chain counts for nothing', async () => {
    const chain = parsePem(chainText('h100-550.90.07'));
    expect(await reason(chain, rimRoots())).toBe('untrusted_root');
    expect(await reason(chain, [])).toBe('untrusted_root');
    const [own] = rimRoots();
    if (own !== undefined) expect(await reason([...chain.slice(0, -1), own])).not.toBe('valid');
  });

  test('a certificate that is left out, put twice or in another place breaks the chain', async () => {
    const chain = parsePem(chainText('h100-550.90.07'));
    expect(await reason(chain.filter((_, i) => i !== 2))).toBe('invalid');
    expect(await reason([...chain].reverse())).not.toBe('valid');
    expect(await reason(chain.flatMap((one) => [one, one]))).not.toBe('valid');
    const other = parsePem(chainText('h100-545.00'));
    expect(await reason([...other.slice(0, 1), ...chain.slice(1)])).toBe('invalid');
    expect(await reason([])).toBe('invalid');
  });

  test('the clock counts, and what is no time fails', async () => {
    const chain = parsePem(chainText('h100-550.90.07'));
    expect(await reason(chain, deviceRoots(), new Date('2020-01-01T00:00:00Z'))).toBe('expired');
    expect(await reason(chain, deviceRoots(), new Date(Number.NaN))).toBe('expired');
  });

  test('every truncation and every flipped bit is refused with a code, or changes no meaning unnoticed', () => {
    const [leaf] = parsePem(chainText('blackwell-575.32'));
    spoil(leaf?.der ?? new Uint8Array(), (bytes) => fwidOf(parseCertificate(bytes)), [DerError]);
  });

  test('PEM has limits', () => {
    const one = chainText('h100-550.90.07').split(/(?<=-----END CERTIFICATE-----\n)/)[0] ?? '';
    expect(() => parsePem('')).toThrow(DerError);
    expect(() => parsePem(one.repeat(17))).toThrow(DerError);
    expect(() => parsePem(one.replace('-----END', '-----XXX'))).toThrow(DerError);
    expect(() => parsePem(`${' '.repeat(300_000)}${one}`)).toThrow(DerError);
  });
});

describe.skipIf(!vectorsPresent)('reports', () => {
  test('every truncation and every flipped bit is refused with a code or by the signature', async () => {
    const bytes = reportBytes('h100-590.12/../h100-550.90.07/report.bin');
    spoil(bytes, parseReport, [CheckFailure]);
    const [leaf] = parsePem(chainText('h100-550.90.07'));
    for (let at = 0; at < bytes.length; at += 331) {
      const changed = Uint8Array.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 4;
      const verified = await (async () =>
        leaf !== undefined && verifyReportSignature(parseReport(changed), leaf))().catch(() => false);
      expect([at, verified]).toEqual([at, false]);
    }
  });

  test('has 64 blocks on GPUs and 31 on switches, counted from 1', () => {
    expect([...parseReport(reportBytes('h100-550.90.07/report.bin')).blocks.keys()]).toEqual(
      Array.from({ length: 64 }, (_, i) => i + 1),
    );
    expect(parseReport(reportBytes('switch-ls10/report.hex')).blocks.size).toBe(31);
  });

  test('a byte after the signature is refused: nothing signs it', () => {
    const bytes = reportBytes('h100-550.90.07/report.bin');
    expect(() => parseReport(Uint8Array.from([...bytes, 0]))).toThrow('bytes follow the signature');
  });
});

describe('opaque data', () => {
  const field = (type: number, value: string, valueType = '') =>
    `${Buffer.from([type & 0xff, type >> 8]).toString('hex')}${valueType}${Buffer.from([value.length / 2, 0]).toString('hex')}${value}`;

  test.skipIf(!vectorsPresent)('in the new format is read to its end', () => {
    const opaque = parseOpaque(reportBytes('opaque-nvdaod/nvdaod_opaque_hopper_620.12.hex'));
    expect(opaque).toMatchObject({
      format: 'NVDAOD',
      version: 2,
      driverVersion: '620.12',
      vbiosVersion: '96.00.D9.00.0F',
    });
    expect(opaque).toMatchObject({
      project: 'G520',
      projectSku: '0201',
      chipSku: '884',
      passThrough: 'spt',
      nvdec0Disabled: false,
    });
    expect(opaque.fwid).toMatch(/^0d7cde10/);
    expect([...opaque.svns]).toEqual([[37, 0]]);
  });

  test.skipIf(!vectorsPresent)('every truncation of it is refused with a code', () => {
    const bytes = reportBytes('opaque-nvdaod/nvdaod_opaque_hopper_620.12.hex');
    for (let at = 0; at < bytes.length; at++)
      try {
        // Cut between two fields it is still opaque data, with fewer of them.
        parseOpaque(bytes.slice(0, at));
      } catch (error) {
        expect(error).toBeInstanceOf(CheckFailure);
      }
  });

  test('skips types that it does not know, and refuses a known one that stands twice', () => {
    const known = field(3, '353500');
    expect(parseOpaque(fromHex(known + field(999, '00') + field(999, '01')))).toMatchObject({
      driverVersion: '55',
      fwid: null,
    });
    expect(() => parseOpaque(fromHex(known + known))).toThrow('stands twice');
  });

  test('names what it cannot read', () => {
    for (const bad of [
      field(11, '00'),
      field(21, '5555'),
      field(36, '09') + field(34, '01'),
      field(34, '03'),
      field(3, '31ff'),
      field(12, '000000'),
    ])
      expect(() => parseOpaque(fromHex(bad))).toThrow(CheckFailure);
    expect(() => parseOpaque(fromHex('4e5644414f440100020000 00'.replace(' ', '')))).toThrow('profile');
  });

  test('reads the pass-through where the version has one', () => {
    expect(parseOpaque(fromHex(field(34, '0100') + field(36, '0100'))).passThrough).toBe('mpt');
    expect(parseOpaque(fromHex(field(36, '0100'))).passThrough).toBe(null);
    expect(parseOpaque(new Uint8Array())).toMatchObject({ format: 'legacy', driverVersion: null, vbiosVersion: null });
  });
});

describe.skipIf(!vectorsPresent)('OCSP responses', () => {
  test('every truncation and every flipped bit is refused with a code', () => {
    const [response] = ocspResponses();
    spoil(response ?? new Uint8Array(), parseOcspResponse, [DerError, OcspRefusal]);
  });
});

test('an ECDSA signature verifies in DER alone, its integers positive and in their shortest form', async () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const key = { spki: publicKey.export({ type: 'spki', format: 'der' }), curve: 'P-256' } as const;
  const data = Buffer.from('data');
  const verifies = (der: Uint8Array) => ecdsaVerify(key, 'SHA-256', der, data);
  const integer = (...content: number[]) => [2, content.length, ...content];
  const signature = (...parts: number[][]) => Uint8Array.from([0x30, parts.flat().length, ...parts.flat()]);
  // Of 32 bytes and below 0x80 each, so that a zero more leaves them of a length that the curve has.
  let numbers: number[][];
  do numbers = sequence(readOne(sign('sha256', data, privateKey))).map(({ content }) => [...content]);
  while (numbers.some(({ length }) => length !== 32));
  const [r = [], s = []] = numbers;
  expect(await verifies(signature(integer(...r), integer(...s)))).toBe(true);
  for (const evil of [
    [integer(0, ...r), integer(...s)],
    [integer(...r), integer(0, ...s)],
    [integer(...r), integer(...s), integer(0)],
    [integer(...r)],
    [integer(0), integer(...s)],
    [integer(...r), integer()],
    [integer(0xff, ...r), integer(...s)],
  ])
    expect([evil, await verifies(signature(...evil))]).toEqual([evil, false]);
});

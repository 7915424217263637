// Attacks by the form of the input: duplicates, prototype keys, fields of a hundred megabytes, great depth.
import { describe, expect, test } from 'vitest';
import { evidenceSchema } from '../../../proto/attestation/attestation-schema.ts';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { withLastMember } from '../../../proto/json.ts';
import { nonceHex, rawOf, STREAMED, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { bare, evidenceOf, forge } from '../../../scripts/vectors/forge.ts';
import { codeOf, codeOfEvidence, good, refused, refusedEvidence, within, world } from './attacks.ts';

const text = JSON.stringify(good);
const nonce = nonceHex(rawOf(WHOLE));
const listed = [bare(await evidenceOf(world.a, nonce), nonce)];
const MEGABYTES_100 = 100_000_000;

describe('members given twice', () => {
  test('at the top level, by escape too, are refused', async () => {
    for (const name of ['raw', 'nonce', 'token', 'evidence', '\\u0072aw', 'n\\u006fnce', 'x'])
      await refused('not_an_attestation', text.replace('{', `{"${name}":"x",${name === 'x' ? '"x":"x",' : ''}`));
  });
  test('inside of evidence are refused', async () => {
    for (const name of ['arch', 'report', 'certificate_chain', 'r\\u0065port'])
      await refused('not_an_attestation', text.replace('"arch":', `"${name}":"x","arch":`));
    await refusedEvidence('not_an_attestation', JSON.stringify(listed).replace('"nonce":', '"nonce":"x","nonce":'));
  });
  test('inside of an attestation that a response carries are refused, as text and as text in text', async () => {
    const twice = text.replace('{', '{"raw":"x",');
    for (const carried of [
      `{"attestation":${twice}}`,
      `{"attestation":${JSON.stringify(twice)}}`,
      JSON.stringify(twice),
    ])
      await refused('not_an_attestation', carried);
  });
});

describe('names that every object has', () => {
  const NAMES = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'valueOf'];
  test('are members like any other: an attestation by itself has none, and one in a response may', async () => {
    for (const name of NAMES) {
      const more = text.replace('{', `{"${name}":{"raw":"x","valid":true,"simulated":false},`);
      expect(await codeOf(more)).toBe('unsigned_member');
      expect(await codeOf(JSON.parse(more))).toBe('unsigned_member');
      const answer = withLastMember(splitRaw(good.raw).response, 'attestation', more);
      expect(await codeOf(answer)).toBe('valid');
      expect(await codeOf(JSON.parse(answer))).toBe('valid');
      expect(await codeOf(text.replace('"arch":', `"${name}":{"arch":"x"},"arch":`))).toBe('valid');
    }
    expect(({} as { valid?: boolean }).valid).toBeUndefined();
  });
  test('give nothing to who lacks it: an inherited member is no member', async () => {
    for (const name of ['raw', 'nonce', 'token'] as const) {
      const { [name]: value, ...rest } = good;
      await refused('not_an_attestation', Object.setPrototypeOf({ ...rest }, { [name]: value }));
      await refused(
        'unsigned_member',
        JSON.parse(`{"__proto__":{"${name}":${JSON.stringify(value)}},${JSON.stringify(rest).slice(1)}`),
      );
    }
    const [one] = good.evidence;
    await refused('not_an_attestation', { ...good, evidence: [Object.create(one ?? null)] });
  });
  test('do not name an architecture, a RIM or a key', async () => {
    for (const name of NAMES)
      await refused('chain_invalid', { ...good, evidence: good.evidence.map((one) => ({ ...one, arch: name })) });
  });
});

describe('a field of 100 MB', () => {
  const huge = 'A'.repeat(MEGABYTES_100);
  const asText = (change: object) => JSON.stringify({ ...good, ...change });
  const evidence = (change: object) => ({ evidence: good.evidence.map((one) => ({ ...one, ...change })) });

  test('makes a text too large, and nothing of it is read', async () => {
    for (const given of [asText({ raw: huge }), `"${huge}"`, ' '.repeat(MEGABYTES_100), `${'['.repeat(MEGABYTES_100)}`])
      await within(300, 50, () => refused('too_large', given));
    await within(300, 50, () => refusedEvidence('too_large', `[${huge}]`));
  });
  test.each(['raw', 'nonce', 'token'])('in a parsed attestation is refused in time: %s', async (name) => {
    await within(3000, 600, async () => expect(await codeOf({ ...good, [name]: huge })).not.toBe('valid'));
  });
  test.each(['arch', 'report', 'certificate_chain'])('in parsed evidence is refused in time: %s', async (name) => {
    await within(500, 50, () => refused('not_an_attestation', { ...good, ...evidence({ [name]: huge }) }));
  });
  test('of a token that is one long JWT, or deep, or all commas, is refused in time', async () => {
    for (const token of [
      `${huge}.${huge.slice(0, 100)}.`,
      '['.repeat(1_000_000),
      `[${','.repeat(1_000_000)}`,
      '.'.repeat(1_000_000),
      `"${'\\'.repeat(1_000_000)}`,
    ])
      await within(3000, 800, () => refused('token_malformed', { ...good, token }));
  });
  test('of evidence: four million characters of PEM borders, of base64, of zeros', async () => {
    const borders = Buffer.from('-----BEGIN CERTIFICATE-----\n'.repeat(100_000)).toString('base64');
    for (const certificate_chain of [
      borders,
      'A'.repeat(3_999_996),
      Buffer.from('-----BEGIN CERTIFICATE-----'.padEnd(2_900_000, 'A')).toString('base64'),
    ])
      await within(1000, 200, () => refused('evidence_malformed', { ...good, ...evidence({ certificate_chain }) }));
    await within(1000, 200, () =>
      refused('report_malformed', { ...good, ...evidence({ report: 'A'.repeat(3_999_996) }) }),
    );
  });
});

describe('great depth and great number', () => {
  test('is refused with a code, whatever nests', async () => {
    for (const deep of [
      '['.repeat(1_000_000),
      '{"a":'.repeat(500_000),
      `{"raw":${'['.repeat(200_000)}${']'.repeat(200_000)}}`,
    ]) {
      await within(2000, 800, async () => expect(['not_json', 'not_an_attestation']).toContain(await codeOf(deep)));
      await within(2000, 800, async () =>
        expect(['not_json', 'not_an_attestation']).toContain(await codeOfEvidence(deep)),
      );
    }
    const member = `{"x":${'['.repeat(200_000)}${']'.repeat(200_000)},${text.slice(1)}`;
    await within(2000, 800, async () => expect(await codeOf(member)).toBe('unsigned_member'));
  });
  test('of devices is refused', async () => {
    await refused('not_an_attestation', { ...good, evidence: Array.from({ length: 65 }, () => good.evidence[0]) });
    await refusedEvidence(
      'not_an_attestation',
      Array.from({ length: 100_000 }, () => listed[0]),
    );
  });
  test('of one device 64 times is refused in time', () =>
    within(3000, 400, () =>
      refused('evidence_malformed', { ...good, evidence: Array.from({ length: 64 }, () => good.evidence[0]) }),
    ));
});

describe('what is no attestation at all', () => {
  test.each([undefined, null, 0, true, [], {}, new Map(), new Date(), () => good, Symbol('x'), 1n, new Uint8Array(0)])(
    '%o is refused with a code',
    async (input) => {
      await refused('not_an_attestation', input);
    },
  );
  test('evidence that is empty, null or no list is refused, not taken for none', async () => {
    for (const evidence of [[], null, {}, '', 0, [null], [[]], [{}]])
      await refused('not_an_attestation', { ...good, evidence });
  });
  test('evidence in both of its forms at once is refused: its reader may mean the other', async () => {
    const [one] = listed;
    const ours = { report: one?.evidence, certificate_chain: one?.certificate };
    expect(await codeOfEvidence([{ arch: one?.arch, nonce, ...ours }])).toBe('valid');
    for (const more of [{ evidence: 'AAAA' }, { certificate: 'AAAA' }, { evidence: 'AAAA', certificate: 'AAAA' }])
      await refusedEvidence('not_an_attestation', [{ arch: one?.arch, nonce, ...ours, ...more }]);
    await refusedEvidence('not_an_attestation', [{ ...one, certificate_chain: 'AAAA' }]);
  });
  test('a nonce in another writing is refused', async () => {
    for (const other of [nonce.toUpperCase(), `0x${nonce}`, ` ${nonce}`, `${nonce}\n`, nonce.slice(1)])
      await refused('not_an_attestation', { ...good, nonce: other });
  });
  test('base64 in another alphabet, or with white space, is refused', async () => {
    const [one] = good.evidence;
    for (const report of [
      one?.report.replaceAll('+', '-').replaceAll('/', '_') ?? '',
      `${one?.report}\n`,
      `${one?.report}====`,
    ])
      if (!evidenceSchema.safeParse({ ...one, report }).success)
        expect(await codeOf({ ...good, evidence: [{ ...one, report }] })).not.toBe('valid');
  });
  test('two attestations, an answer of A and one of B, do not lend each other anything', async () => {
    const other = await forge(world, { raw: rawOf({ ...WHOLE, request: '{"tee":true}' }) });
    for (const name of ['raw', 'nonce', 'token', 'evidence'] as const)
      expect(await codeOf({ ...good, [name]: other[name] })).not.toBe('valid');
  });
});

describe('values that no JSON text has', () => {
  const [one] = good.evidence;
  const [named] = listed;
  const withHole = (at: number, ...items: unknown[]) => {
    const list = items.toSpliced(at, 0, null);
    delete list[at];
    return list;
  };
  const selfish: Record<string, unknown> = { choices: [] };
  Object.assign(selfish, { self: selfish, choices: [selfish] });

  test('a list of evidence with a hole in it is refused, wherever the hole is', async () => {
    for (const evidence of [
      withHole(0, one),
      withHole(1, one),
      withHole(0),
      new Array(64),
      Array.from({ length: 1 }),
    ]) {
      await refused('not_an_attestation', { ...good, evidence });
      await refusedEvidence('not_an_attestation', evidence);
    }
    await refusedEvidence('not_an_attestation', withHole(0, named));
  });
  test('a list of evidence is what stands in its places, however it says that it is walked', async () => {
    const walked = (list: unknown[]) =>
      Object.assign(list, {
        map: () => [],
        entries: () => [],
        *[Symbol.iterator]() {
          for (;;) yield null;
        },
      });
    expect(await codeOf({ ...good, evidence: walked([one]) })).toBe('valid');
    expect(await codeOfEvidence(walked([named]))).toBe('valid');
    await refused('not_an_attestation', { ...good, evidence: walked([{}]) });
  });
  test('an object that holds itself, or what JSON has no word for, ends with a code', async () => {
    const odd: readonly unknown[] = [selfish, 1n, Symbol('x'), () => good, Number.NaN, undefined, new Date(Number.NaN)];
    const streamed = await forge(world, { parts: STREAMED });
    for (const value of odd) {
      for (const name of ['raw', 'nonce', 'token'] as const)
        await refused('not_an_attestation', { ...good, [name]: value });
      if (value !== undefined) await refused('not_an_attestation', { ...good, evidence: value });
      for (const name of ['arch', 'report', 'certificate_chain'] as const)
        await refused('not_an_attestation', { ...good, evidence: [{ ...one, [name]: value }] });
      for (const name of ['arch', 'evidence', 'certificate'] as const)
        await refusedEvidence('not_an_attestation', [{ ...named, [name]: value }]);
      for (const attestation of [good, streamed])
        for (const carrier of [
          { attestation, x: value },
          { attestation, choices: value },
          { attestation, choices: [value] },
          { attestation, choices: withHole(0, { finish_reason: 'stop', delta: value }) },
          { attestation, choices: [{ finish_reason: 'stop', delta: { content: value } }], toJSON: () => value },
        ])
          await refused('response_mismatch', carrier);
    }
  });
});

// Where the certificates and the revocation list of a report of SEV-SNP come from, with a stand-in for AMD's key service.
import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Holder, pem } from '../../../demo/twin/authority.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport, TCB } from '../../../demo/twin/snp.ts';
import { createAmdEndorsements, readCertificateTable } from '../../../sidecar/cpu/amd.ts';
import { appraiseCpu } from '../../../verify/cpu.ts';
import { never } from '../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { CHAIN, CRL, LEAF, serve, tableOf } from './fake-kds.ts';
import { type Answer, type FakeService, failure, startFakeService } from './fake-service.ts';

type AmdOptions = Parameters<typeof createAmdEndorsements>[0];

const NOW_MS = Date.parse('2026-06-01T00:00:00Z');
const [MINUTE_MS, DAY_MS] = [60_000, 86_400_000];

const genoa = makeAmd('Genoa');
const turin = makeAmd('Turin');
/** Another Genoa under a root that is not trusted: the same chip id and TCB, other keys. */
const strange = makeAmd('Genoa');
const ROOTS = pem(genoa.ark, turin.ark);
const leaf = makeLeaf(genoa);
const report = makeSnpReport('Genoa', leaf);
const none = Buffer.alloc(0);

describe("AMD's endorsements", () => {
  let service: FakeService;
  let folder: Folder;
  let now_ms = NOW_MS;
  /** By path; 404 where there is nothing. */
  let answers: Record<string, Answer> = {};
  /** Of one test: work in the background may outlive it. */
  let asked: string[] = [];
  let said: string[] = [];

  const create = (options: Partial<AmdOptions> = {}) => {
    const messages = said;
    return createAmdEndorsements({
      cache_dir: folder.path,
      kds_url: service.url,
      fetch: globalThis.fetch,
      now_ms: () => now_ms,
      onFailure: (message) => messages.push(message),
      roots: ROOTS,
      ...options,
    });
  };
  const endorse = (endorsements = create(), auxblob: Buffer = none, of: Buffer = report) => {
    const messages = said;
    const certificates = readCertificateTable(auxblob, (message) => messages.push(message));
    return endorsements.endorse({ report: of, certificates }, never);
  };
  /** The checks that fail, by the verifier of an attestation. */
  const failures = async (endorsed: object, of: Buffer = report) => {
    const member = { type: 'SEV_SNP', report: of.toString('base64'), ...endorsed };
    const policy = { products: ['Milan', 'Genoa', 'Turin'] } as const;
    const { checks } = await appraiseCpu(member, { at: new Date(now_ms), roots: { amd: ROOTS }, policy });
    return checks.filter(({ status }) => status === 'fail').map(({ code }) => code);
  };
  const asPem = (...holders: readonly Holder[]) =>
    holders.map((holder) => new X509Certificate(holder.der).toString()).join('');
  const pemOf = ({ certificates }: { readonly certificates: string }) => Buffer.from(certificates, 'base64').toString();
  const files = () => readdirSync(folder.path).map((name) => join(folder.path, name));

  beforeEach(async () => {
    folder = temporaryFolder();
    now_ms = NOW_MS;
    answers = serve(genoa, leaf);
    asked = [];
    said = [];
    service = await startFakeService((path) => answers[path], asked);
  });
  afterEach(async () => {
    await service.close();
    folder.remove();
  });

  describe('the order of the sources', () => {
    test.each([
      ['PEM', (holder: Holder) => Buffer.from(pem(holder))],
      ['DER', (holder: Holder) => holder.der],
    ])("the host's table in %s comes first, and of the service only the revocation list is asked", async (_, form) => {
      const { ark, ask } = genoa;
      const table = tableOf(['ark', form(ark)], ['other', Buffer.of(1)], ['ask', form(ask)], ['vcek', form(leaf)]);
      const endorsed = await endorse(create(), table);
      expect(asked).toEqual([CRL]);
      expect(pemOf(endorsed)).toBe(asPem(leaf, ask));
      expect(endorsed.collateral?.crl).toBe((answers[CRL] as Buffer).toString('base64'));
      expect(await failures(endorsed)).toEqual([]);
      expect(said).toEqual([]);
    });

    test('without a table the service is asked for each thing once', async () => {
      const endorsed = await endorse();
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
      expect(pemOf(endorsed)).toBe(asPem(leaf, genoa.ask));
      expect(await failures(endorsed)).toEqual([]);
    });

    test('a table without the authority is completed by the service', async () => {
      expect(await failures(await endorse(create(), tableOf(['vcek', leaf.der])))).toEqual([]);
      expect(asked).toEqual([CHAIN, CRL]);
    });

    test("a table with the leaf of another firmware is said and not used, nor is one with another product's authority", async () => {
      const old = makeLeaf(genoa, { tcb: { ...TCB, snp: 22 } });
      const table = tableOf(['vcek', old.der], ['ask', turin.ask.der]);
      const endorsed = await endorse(create(), table);
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
      expect(pemOf(endorsed)).toBe(asPem(leaf, genoa.ask));
      expect(said).toEqual([
        expect.stringMatching(/host's table is not used \(cpu_signature_invalid/),
        expect.stringMatching(/host's table is not used \(chain_invalid|untrusted_root/),
      ]);
    });

    test('a leaf with the right key and another TCB is not used', async () => {
      const forged = makeLeaf(genoa, { tcb: { ...TCB, snp: 24 } });
      const signed = makeSnpReport('Genoa', forged);
      answers[LEAF] = forged.der;
      const error = await failure(endorse(create(), none, signed));
      expect([error.reason, error.message]).toEqual(['cpu_refused', expect.stringContaining('cpu_identity_mismatch')]);
    });

    test.each([
      ['an entry beyond its end', (table: Buffer) => table.subarray(0, table.length - 1)],
      ['a certificate that is none', (table: Buffer) => Buffer.from(table).fill(0xff, 48)],
      ['no end', (table: Buffer) => table.subarray(0, 24)],
    ])('a table with %s is as none', async (_, spoil) => {
      expect(await failures(await endorse(create(), spoil(tableOf(['vcek', leaf.der]))))).toEqual([]);
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
    });

    test('after a restart nothing is asked for', async () => {
      const first = await endorse();
      for (const file of files()) expect(statSync(file).mode & 0o777).toBe(0o600);
      answers = {};
      asked.length = 0;
      expect(await endorse()).toEqual(first);
      expect(asked).toEqual([]);
      expect(said).toEqual([]);
    });

    test('another TCB is another leaf, under the same authority', async () => {
      await endorse();
      const tcb = { ...TCB, ucode: 85 };
      const next = makeLeaf(genoa, { tcb });
      const updated = makeSnpReport('Genoa', next, { tcb: { reported: tcb } });
      const path = LEAF.replace('ucodeSPL=84', 'ucodeSPL=85');
      answers[path] = next.der;
      asked.length = 0;
      expect(await failures(await endorse(create(), none, updated), updated)).toEqual([]);
      expect(asked).toEqual([path]);
    });

    test('what cannot be kept on disk is asked for once in a process', async () => {
      const blocked = join(folder.path, 'a file');
      writeFileSync(blocked, '');
      const endorsements = create({ cache_dir: blocked });
      await endorse(endorsements);
      now_ms += 10 * MINUTE_MS;
      await endorse(endorsements);
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
      expect(said).toContainEqual(expect.stringContaining(`${blocked} cannot keep what was fetched`));
    });
  });

  describe('which product, and whose leaf', () => {
    test('a Turin has 8 bytes in its address, and the fmc first', async () => {
      const own = makeLeaf(turin);
      const signed = makeSnpReport('Turin', own);
      const path = `/vcek/v1/Turin/${'c1'.repeat(8)}?fmcSPL=1&blSPL=9&teeSPL=1&snpSPL=27&ucodeSPL=84`;
      answers = { ...serve(turin, own), [path]: own.der };
      expect(await failures(await endorse(create(), none, signed), signed)).toEqual([]);
      expect(asked).toEqual([path, '/vcek/v1/Turin/cert_chain', '/vcek/v1/Turin/crl']);
    });

    test('a report of version 2 has its product from the leaf in the table', async () => {
      const signed = makeSnpReport('Genoa', leaf, { version: 2 });
      expect(await failures(await endorse(create(), tableOf(['vcek', leaf.der]), signed), signed)).toEqual([]);
      expect(asked).toEqual([CHAIN, CRL]);
    });

    test('a report of version 2 without a leaf is a plain failure', async () => {
      const signed = makeSnpReport('Genoa', leaf, { version: 2 });
      const error = await failure(endorse(create(), none, signed));
      expect([error.reason, error.retryable]).toEqual(['cpu_unavailable', false]);
      expect(error.message).toContain('a report of version 2 does not say of what product it is');
      expect(asked).toEqual([]);
    });

    test("a VLEK comes from the table alone, its authority from the VLEKs' chain", async () => {
      const vlek = makeLeaf(genoa, { kind: 'VLEK' });
      const signed = makeSnpReport('Genoa', vlek, { kind: 'VLEK' });
      const path = '/vlek/v1/Genoa/cert_chain';
      answers[path] = Buffer.from(pem(genoa.asvk, genoa.ark));
      const endorsed = await endorse(create(), tableOf(['vcek', leaf.der], ['vlek', vlek.der]), signed);
      expect(await failures(endorsed, signed)).toEqual([]);
      expect(asked).toEqual([path, CRL]);
      asked.length = 0;
      const error = await failure(endorse(create(), tableOf(['vcek', leaf.der]), signed));
      expect([error.reason, error.retryable, asked]).toEqual(['cpu_unavailable', false, []]);
    });

    test('a chip whose id the host hides is not asked for', async () => {
      const signed = makeSnpReport('Genoa', leaf, { edit: (bytes) => bytes.fill(0, 0x1a0, 0x1e0) });
      const error = await failure(endorse(create(), none, signed));
      expect([error.message, asked]).toEqual([expect.stringContaining("hides the chip's id"), []]);
    });

    test.each([
      ['too short', report.subarray(1), 'cpu_malformed'],
      [
        'of an unknown processor',
        makeSnpReport('Genoa', leaf, { edit: (bytes) => bytes.fill(0x7f, 0x188, 0x18a) }),
        'cpu_unsupported',
      ],
    ])('a report that is %s is refused before anything is asked', async (_, bytes, code) => {
      const error = await failure(endorse(create(), none, bytes));
      expect([error.reason, error.message, asked]).toEqual(['cpu_refused', expect.stringContaining(code), []]);
    });
  });

  describe('what is kept is checked before it is used', () => {
    test('a damaged file is said, fetched again, and replaced', async () => {
      await endorse();
      const [damaged = '', cut = '', exchanged = ''] = files();
      const before = files().map((file) => readFileSync(file));
      const bytes = readFileSync(damaged);
      bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
      writeFileSync(damaged, bytes);
      writeFileSync(exchanged, readFileSync(cut));
      writeFileSync(cut, readFileSync(cut).subarray(0, 40));
      asked.length = 0;
      expect(await failures(await endorse())).toEqual([]);
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
      for (const file of [damaged, cut, exchanged])
        expect(said).toContainEqual(expect.stringContaining(`${file} is damaged`));
      expect(files().map((file) => readFileSync(file))).toEqual(before);
    });

    test('a whole file with the wrong certificate is said, fetched again, and replaced', async () => {
      const other = makeLeaf(strange);
      answers = serve(strange, other);
      await endorse(create({ roots: pem(strange.ark) }), none, makeSnpReport('Genoa', other));
      answers = serve(genoa, leaf);
      asked.length = 0;
      const endorsed = await endorse();
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
      expect(pemOf(endorsed)).toBe(asPem(leaf, genoa.ask));
      expect(await failures(endorsed)).toEqual([]);
      expect(said).toEqual([
        expect.stringMatching(/^the certificate of chip .* is not used \(cpu_signature_invalid/),
        expect.stringMatching(/^the authority of Genoa's VCEKs is not used/),
        expect.stringMatching(/^the kept revocation list of Genoa is not used \(revocation_invalid/),
      ]);
      answers = {};
      asked.length = 0;
      expect(await endorse()).toEqual(endorsed);
      expect(asked).toEqual([]);
    });

    test("a leaf of the service that is another processor's is refused, and not kept", async () => {
      answers[LEAF] = makeLeaf(strange).der;
      const error = await failure(endorse());
      expect([error.reason, error.retryable]).toEqual(['cpu_refused', true]);
      expect(files()).toEqual([]);
      answers[LEAF] = leaf.der;
      expect(await failures(await endorse())).toEqual([]);
    });

    test('a chain of the service under another root is refused', async () => {
      answers[CHAIN] = Buffer.from(pem(strange.ask, strange.ark));
      expect((await failure(endorse())).reason).toBe('cpu_refused');
    });
  });

  describe('a service that fails', () => {
    const HANGS = { timeout_ms: 50 };
    test.each([
      ['says no', 500, 'answered 500', {}],
      ['has no such leaf', 404, 'answered 404', {}],
      ['sends something else', Buffer.from('<html>'), 'no certificate', {}],
      ['sends too much', Buffer.alloc(17 * 1024, 0x30), 'sent more than 16384 bytes', {}],
      ['never ends', (response) => void response.writeHead(200).write('-'), 'not answer within 50 ms', HANGS],
      ['hangs', () => {}, 'not answer within 50 ms', HANGS],
      ['cuts the connection', (response) => void response.destroy(), 'could not be asked', {}],
      ['redirects', (response) => void response.writeHead(302, { location: CHAIN }).end(), 'could not be asked', {}],
    ] satisfies [string, Answer, string, object][])(
      'and %s is asked again after a minute, not before',
      async (_, answer, words, options) => {
        const endorsements = create(options);
        answers[LEAF] = answer;
        const error = await failure(endorse(endorsements));
        expect([error.reason, error.retryable]).toEqual(['cpu_unavailable', true]);
        expect(error.message).toContain(words);
        now_ms += MINUTE_MS - 1;
        expect((await failure(endorse(endorsements))).message).toBe(error.message);
        expect(asked).toEqual([LEAF]);
        now_ms += 1;
        await failure(endorse(endorsements));
        expect(asked).toEqual([LEAF, LEAF]);
        answers[LEAF] = leaf.der;
        expect(await failures(await endorse())).toEqual([]);
      },
    );

    test('and says 429 is left alone for as long as it says, by whatever is wanted of it', async () => {
      const busy = (response: ServerResponse) => void response.writeHead(429, { 'retry-after': '120' }).end();
      const endorsements = create();
      answers[CHAIN] = busy;
      expect((await failure(endorse(endorsements))).message).toContain('answered 429');
      expect(asked).toEqual([LEAF, CHAIN]);
      answers = serve(genoa, leaf);
      now_ms += 119_999;
      const error = await failure(endorse(endorsements));
      expect([error.reason, error.retryable]).toEqual(['cpu_unavailable', true]);
      expect(error.message).toContain('wants no request before 2026-06-01T00:02:00Z');
      await endorse(endorsements, tableOf(['vcek', leaf.der], ['ask', genoa.ask.der]));
      expect(asked).toEqual([LEAF, CHAIN]);
      now_ms += MINUTE_MS;
      expect(await failures(await endorse(endorsements))).toEqual([]);
      // The leaf that came before is not asked for again.
      expect(asked).toEqual([LEAF, CHAIN, CHAIN, CRL]);
    });

    test('and says 429 without a time is left alone for a minute', async () => {
      const endorsements = create();
      answers[LEAF] = 429;
      await failure(endorse(endorsements));
      now_ms += MINUTE_MS - 1;
      await failure(endorse(endorsements));
      expect(asked).toEqual([LEAF]);
      answers = serve(genoa, leaf);
      now_ms += 1;
      expect(await failures(await endorse(endorsements))).toEqual([]);
    });

    test('a huge chain is refused', async () => {
      answers[CHAIN] = Buffer.alloc(65 * 1024, 0x20);
      expect((await failure(endorse())).message).toContain('sent more than 65536 bytes');
    });

    test('two callers at once share each request', async () => {
      const endorsements = create();
      const [one, two] = await Promise.all([endorse(endorsements), endorse(endorsements)]);
      expect(one).toEqual(two);
      expect(asked).toEqual([LEAF, CHAIN, CRL]);
    });

    test('an abort ends the wait', async () => {
      const abort = new AbortController();
      answers[LEAF] = () => abort.abort(new Error('enough'));
      await expect(create().endorse({ report, certificates: {} }, abort.signal)).rejects.toThrow('enough');
      await expect(create().endorse({ report, certificates: {} }, abort.signal)).rejects.toThrow('enough');
      expect(asked).toEqual([LEAF]);
    });
  });

  describe('the revocation list', () => {
    const table = tableOf(['vcek', leaf.der], ['ask', genoa.ask.der]);
    const fresh = amdCrl(genoa, [99], {
      thisUpdate: new Date('2026-06-01T00:00:00Z'),
      nextUpdate: new Date('2026-12-01T00:00:00Z'),
    });
    const crlOf = (endorsed: { readonly collateral?: { readonly crl: string } }) => endorsed.collateral?.crl;

    test.each([
      ['is absent', 404],
      ['is too large', Buffer.alloc(1024 * 1024 + 1, 0x30)],
      ['is none', Buffer.from('<html>')],
      ['is of another root', amdCrl(strange)],
      ['has ended', amdCrl(genoa, [], { thisUpdate: new Date('2026-01-01'), nextUpdate: new Date('2026-05-31') })],
    ] satisfies [string, Answer][])('is left out where it %s, and that is said', async (_, answer) => {
      answers[CRL] = answer;
      const endorsed = await endorse(create(), table);
      expect(Object.keys(endorsed)).toEqual(['certificates']);
      expect(await failures(endorsed)).toEqual(['revocation_unavailable']);
      expect(said).toEqual([expect.stringContaining('revocation list of Genoa')]);
    });

    test('is handed on where it revokes the authority: that is for the verifier to say', async () => {
      answers[CRL] = amdCrl(genoa, [2]);
      expect(await failures(await endorse(create(), table))).toEqual(['certificate_revoked']);
    });

    test('is fetched again after a day, beside the kept one that is handed on', async () => {
      const endorsements = create();
      const first = crlOf(await endorse(endorsements, table));
      answers[CRL] = fresh;
      now_ms += DAY_MS - 1;
      expect(crlOf(await endorse(endorsements, table))).toBe(first);
      expect(asked).toEqual([CRL]);
      now_ms += 1;
      expect(crlOf(await endorse(endorsements, table))).toBe(first);
      await vi.waitFor(async () => expect(crlOf(await endorse(endorsements, table))).toBe(fresh.toString('base64')));
      expect(asked).toEqual([CRL, CRL]);
      const fetch = () => Promise.reject(new Error('not asked'));
      await vi.waitFor(async () =>
        expect(crlOf(await endorse(create({ fetch }), table))).toBe(fresh.toString('base64')),
      );
    });

    test('is used until it ends while the service is down, and not longer', async () => {
      const endorsements = create();
      const first = crlOf(await endorse(endorsements, table));
      answers[CRL] = 500;
      now_ms = Date.parse('2026-12-31T23:59:59Z');
      expect(crlOf(await endorse(endorsements, table))).toBe(first);
      await vi.waitFor(() => expect(said).toEqual([expect.stringContaining('answered 500')]));
      now_ms = Date.parse('2027-01-01T00:01:00Z');
      expect(crlOf(await endorse(endorsements, table))).toBeUndefined();
    });
  });
});

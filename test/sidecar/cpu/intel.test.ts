// Where Intel's collateral of a TDX quote comes from, with a stand-in for its Provisioning Certification Service.
import { sign } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { certify, newKeys, pem } from '../../../demo/twin/authority.ts';
import { FMSPC, type Intel, makeCollateral, makeIntel, makePck, makeQuote, svns } from '../../../demo/twin/tdx.ts';
import { INTEL_PCS_URL } from '../../../sidecar/common/config.ts';
import { createIntelCollateral } from '../../../sidecar/cpu/intel.ts';
import { appraiseCpu, type TdxCollateral } from '../../../verify/cpu.ts';
import { collateralEnd } from '../../../verify/service.ts';
import { never } from '../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { ALL, PCK_CRL, QE, ROOT_CRL, repliesOf, TCB } from './fake-pcs.ts';
import { type Answer, type FakeService, failure, type Reply, startFakeService } from './fake-service.ts';

type IntelOptions = Parameters<typeof createIntelCollateral>[0];

const FROM = new Date('2026-06-01T00:00:00Z');
const TO = new Date('2026-07-01T00:00:00Z');
const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000];

const intel = makeIntel();
/** Of another root, which is not trusted. */
const strange = makeIntel();
const ROOTS = pem(intel.root);
const pck = makePck(intel);
const quote = makeQuote(intel, pck);
const collateralFrom = (from: Date, to: Date, of = intel) => makeCollateral(of, { window: { from, to } });

describe("Intel's collateral", () => {
  let service: FakeService;
  let folder: Folder;
  let now_ms = 0;
  let answers: Record<string, Answer> = {};
  /** Of one test: work in the background may outlive it. */
  let asked: string[] = [];
  let said: string[] = [];
  const first = collateralFrom(FROM, TO);

  const create = (options: Partial<IntelOptions> = {}) => {
    const messages = said;
    return createIntelCollateral({
      cache_dir: folder.path,
      pcs_url: service.url,
      fetch: globalThis.fetch,
      now_ms: () => now_ms,
      onFailure: (message) => messages.push(message),
      roots: ROOTS,
      ...options,
    });
  };
  const endorse = async (source = create(), report: Buffer = quote) =>
    (await source.endorse({ report }, never)).collateral;
  /** The checks that fail, by the verifier of an attestation. */
  const failures = async (collateral: TdxCollateral, report: Buffer = quote) => {
    const member = { type: 'TDX', report: report.toString('base64'), collateral };
    const { checks } = await appraiseCpu(member, { at: new Date(now_ms), roots: { intel: ROOTS } });
    return checks.filter(({ status }) => status === 'fail').map(({ code }) => code);
  };
  const files = () => readdirSync(folder.path).map((name) => join(folder.path, name));
  /** What a restart without the service would find. */
  const onDisk = () => endorse(create({ fetch: () => Promise.reject(new Error('not asked')) }));
  const outage = () => Object.fromEntries(ALL.map((path) => [path, 503]));

  beforeEach(async () => {
    folder = temporaryFolder();
    now_ms = FROM.getTime() + HOUR_MS;
    answers = repliesOf(first);
    asked = [];
    said = [];
    service = await startFakeService((path) => answers[path], asked);
  });
  afterEach(async () => {
    await service.close();
    folder.remove();
  });

  describe('what is fetched', () => {
    test('is asked for by the platform that the quote names, and comes as it was signed', async () => {
      const source = create();
      const collateral = await endorse(source);
      expect(asked.toSorted()).toEqual(ALL);
      expect(collateral).toEqual(first);
      expect(await failures(collateral)).toEqual([]);
      expect(collateralEnd(collateral)).toEqual(TO);
    });

    test("of a processor under Intel's other authority is that authority's list", async () => {
      const spec = { cn: 'Intel SGX PCK Processor CA', ca: true, serial: 10 };
      const other: Intel = { ...intel, authority: certify(spec, newKeys('P-256'), intel.root) };
      const report = makeQuote(other, makePck(other, { fmspc: '00a06f000000' }));
      const fmspc = '00A06F000000';
      const window = { from: FROM, to: TO };
      const replies = repliesOf(makeCollateral(other, { window, tcbInfo: { fmspc } }));
      const moved = {
        [TCB.replace(FMSPC, '00a06f000000')]: replies[TCB] as Answer,
        [PCK_CRL.replace('platform', 'processor')]: replies[PCK_CRL] as Answer,
      };
      answers = { [QE]: replies[QE] as Answer, [ROOT_CRL]: replies[ROOT_CRL] as Answer, ...moved };
      expect(await failures(await endorse(create(), report), report)).toEqual([]);
      expect(asked).toEqual(expect.arrayContaining(Object.keys(moved)));
    });

    test('keeps unusual white space byte for byte, through the disk too', async () => {
      const strangely = (text: string) =>
        `{ \r\n\t${JSON.stringify(JSON.parse(text), null, '  ')
          .slice(1, -1)
          .replaceAll(':', ' :\t')
          .replace(/ :\t(\d\d) :\t/g, ':$1:')}\n }`;
      const signatureOf = (text: string) =>
        sign('sha256', Buffer.from(text), { key: intel.signer.key, dsaEncoding: 'ieee-p1363' }).toString('hex');
      const [tcb_info, qe_identity] = [strangely(first.tcb_info), strangely(first.qe_identity)];
      const odd = {
        ...{ ...first, tcb_info, tcb_info_signature: signatureOf(tcb_info) },
        ...{ qe_identity, qe_identity_signature: signatureOf(qe_identity) },
      };
      expect(JSON.stringify(JSON.parse(tcb_info))).not.toBe(tcb_info);
      answers = repliesOf(odd);
      for (const source of [create(), create()]) {
        const collateral = await endorse(source);
        expect(collateral.tcb_info).toBe(tcb_info);
        expect(collateral.qe_identity).toBe(qe_identity);
        expect(await failures(collateral)).toEqual([]);
      }
    });

    test("may be a caching service's: lists in hex and PEM, and the older name of a header", async () => {
      const { headers: { 'TCB-Info-Issuer-Chain': chain = '' } = {}, body } = answers[TCB] as Reply;
      answers[TCB] = { body, headers: { 'SGX-TCB-Info-Issuer-Chain': chain } };
      answers[ROOT_CRL] = { body: `${first.root_ca_crl.toUpperCase()}\n` };
      const { headers } = answers[PCK_CRL] as Reply;
      const base64 = Buffer.from(first.pck_crl, 'hex').toString('base64').replace(/.{64}/g, '$&\n');
      const list = `-----BEGIN X509 CRL-----\n${base64}\n-----END X509 CRL-----\n`;
      answers[PCK_CRL] = { body: list, ...(headers === undefined ? {} : { headers }) };
      expect(await endorse()).toEqual(first);
    });

    test("from Intel's own service has the root's list from where Intel has it", async () => {
      const hosts: string[] = [];
      const fetch: typeof globalThis.fetch = (input, init) => {
        const { origin, pathname, search } = new URL(String(input));
        hosts.push(`${origin}${pathname}`);
        const path = pathname === '/IntelSGXRootCA.der' ? ROOT_CRL : pathname + search;
        return globalThis.fetch(`${service.url}${path}`, init);
      };
      expect(await endorse(create({ pcs_url: INTEL_PCS_URL, fetch }))).toEqual(first);
      expect(hosts.toSorted()).toEqual([
        'https://api.trustedservices.intel.com/sgx/certification/v4/pckcrl',
        'https://api.trustedservices.intel.com/tdx/certification/v4/qe/identity',
        'https://api.trustedservices.intel.com/tdx/certification/v4/tcb',
        'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der',
      ]);
    });

    test('is handed on where the platform is out of date or revoked: that is for the verifier to say', async () => {
      const old = makeQuote(intel, makePck(intel, { cpuSvn: svns(2, 2, 2, 2, 3, 1, 0, 5) }));
      expect(await failures(await endorse(create(), old), old)).toEqual(['tcb_not_accepted']);
      const window = { from: FROM, to: TO };
      answers = repliesOf(makeCollateral(intel, { window, pckRevoked: [12] }));
      now_ms += DAY_MS;
      await endorse();
      await vi.waitFor(async () => expect(await failures(await onDisk())).toEqual(['certificate_revoked']));
    });

    test('two callers at once share each request', async () => {
      const source = create();
      expect(await Promise.all([endorse(source), endorse(source)])).toEqual([first, first]);
      expect(asked).toHaveLength(4);
    });
  });

  describe('what is kept', () => {
    test('is used after a restart, and nothing is asked for', async () => {
      await endorse();
      for (const file of files()) expect(statSync(file).mode & 0o777).toBe(0o600);
      answers = {};
      asked.length = 0;
      const source = create();
      expect(await endorse(source)).toEqual(first);
      expect([asked, said]).toEqual([[], []]);
    });

    test('is renewed after a day, beside the kept one that is handed on', async () => {
      const source = create();
      await endorse(source);
      const next = collateralFrom(new Date(FROM.getTime() + DAY_MS), new Date(TO.getTime() + DAY_MS));
      answers = repliesOf(next);
      now_ms += DAY_MS - 1;
      expect(await endorse(source)).toEqual(first);
      expect(asked).toHaveLength(4);
      now_ms += 1;
      expect(await endorse(source)).toEqual(first);
      await vi.waitFor(async () => expect(await endorse(source)).toEqual(next));
      expect(asked).toHaveLength(8);
      expect(collateralEnd(await endorse(source)).getTime()).toBe(TO.getTime() + DAY_MS);
      await vi.waitFor(async () => expect(await onDisk()).toEqual(next));
    });

    test('is renewed hourly on its last day', async () => {
      const source = create();
      now_ms = TO.getTime() - DAY_MS / 2;
      await endorse(source);
      const next = collateralFrom(new Date(now_ms), new Date(now_ms + 30 * DAY_MS));
      answers = repliesOf(next);
      now_ms += HOUR_MS - 1;
      expect(await endorse(source)).toEqual(first);
      expect(asked).toHaveLength(4);
      now_ms += 1;
      await endorse(source);
      await vi.waitFor(async () => expect(await onDisk()).toEqual(next));
    });

    test('serves a week without the service and on to its end, and then there is none', async () => {
      const source = create();
      await endorse(source);
      answers = outage();
      for (let day = 1; day <= 7; day++) {
        now_ms += DAY_MS;
        said.length = 0;
        const collateral = await endorse(source);
        expect(collateral).toEqual(first);
        expect(await failures(collateral)).toEqual([]);
        await vi.waitFor(() => expect(said).toEqual([expect.anything()]));
        expect(said[0]).toMatch(/^what is kept is used until 2026-07-01T00:00:00Z: .* answered 503$/);
      }
      // A restart in the outage finds it too.
      now_ms = TO.getTime();
      const restarted = create();
      expect(await endorse(restarted)).toEqual(first);
      now_ms += HOUR_MS;
      for (const one of [source, restarted]) {
        const error = await failure(endorse(one));
        expect([error.reason, error.code, error.retryable]).toEqual(['cpu_unavailable', 'collection_failed', true]);
        expect(error.message).toMatch(
          /^cpu_unavailable: the collateral of FMSPC 90c06f000000 .* is not at hand: 127\.0\.0\.1/,
        );
      }
      expect(said).toContainEqual(expect.stringContaining('is not used (collateral_expired'));
      const next = collateralFrom(new Date(now_ms), new Date(now_ms + 30 * DAY_MS));
      answers = repliesOf(next);
      now_ms += MINUTE_MS;
      expect(await endorse(source)).toEqual(next);
    });

    test.each([
      ['a changed byte', (file: Buffer) => Buffer.from(file).fill(0x20, file.length - 1)],
      ['half of it', (file: Buffer) => file.subarray(0, file.length / 2)],
      ['nothing', () => Buffer.alloc(0)],
    ])('is fetched again and replaced where its file has %s', async (_, damage) => {
      await endorse();
      const [file = '', ...more] = files();
      expect(more).toEqual([]);
      const before = readFileSync(file);
      writeFileSync(file, damage(before));
      expect(await endorse()).toEqual(first);
      expect(asked).toHaveLength(8);
      expect(said).toEqual([expect.stringContaining(`${file} is damaged`)]);
      expect(readFileSync(file)).toEqual(before);
    });

    test('is used again where the clock was wrong in between', async () => {
      const source = create();
      await endorse(source);
      answers = outage();
      now_ms = 0;
      expect((await failure(endorse(source))).reason).toBe('cpu_refused');
      now_ms = TO.getTime() + 1;
      expect((await failure(endorse(source))).reason).toBe('cpu_unavailable');
      now_ms = FROM.getTime() + HOUR_MS;
      expect(await endorse(source)).toEqual(first);
      expect(await endorse(create())).toEqual(first);
    });

    test("is fetched again and replaced where it is another root's", async () => {
      answers = repliesOf(collateralFrom(FROM, TO, strange));
      await endorse(create({ roots: pem(strange.root) }), makeQuote(strange, makePck(strange)));
      answers = repliesOf(first);
      expect(await endorse()).toEqual(first);
      expect(said).toEqual([
        expect.stringMatching(/^the kept collateral of FMSPC 90c06f000000 .* is not used \(collateral_invalid/),
      ]);
      answers = {};
      expect(await endorse()).toEqual(first);
    });
  });

  describe('what is refused', () => {
    const chainOf = (answer: Answer | undefined) => (answer as Reply).headers ?? {};
    const changed = (path: string, change: (body: string) => string) => () => {
      const reply = answers[path] as Reply;
      answers[path] = { ...reply, body: change(String(reply.body)) };
    };

    test.each([
      [
        'another text than was signed',
        changed(TCB, (body) => body.replace('UpToDate', 'UptoDate')),
        'collateral_invalid',
      ],
      ['a text twice', changed(TCB, (body) => body.replace('{', '{"tcbInfo":{},')), 'it has not one member tcbInfo'],
      [
        'a text without a signature',
        changed(QE, (body) => body.replace('"signature"', '"sig"')),
        'not one member signature',
      ],
      ['a signature that is none', changed(QE, (body) => body.replace(/"[0-9a-f]{128}"/, '17')), 'not written in hex'],
      ['no JSON', changed(QE, () => '<html>'), 'it is not a JSON object'],
      ['a name that is no JSON', changed(QE, () => '{"\\x":1}'), 'it is not a JSON object'],
      ['a text too large', changed(TCB, (body) => body + ' '.repeat(256 * 1024)), 'sent more than 262144 bytes'],
      ['a list too large', changed(ROOT_CRL, () => '0'.repeat(1024 * 1024 + 1)), 'sent more than 1048576 bytes'],
      ['a list that is none', changed(ROOT_CRL, () => 'no list'), 'collateral_invalid: root_ca_crl'],
      [
        'no issuer chain',
        () => {
          answers[TCB] = { body: (answers[TCB] as Reply).body };
        },
        'no header TCB-Info-Issuer-Chain',
      ],
      [
        'an issuer chain that is not encoded as URLs are',
        () => {
          const headers = { ...chainOf(answers[QE]), 'SGX-Enclave-Identity-Issuer-Chain': '%E0%' };
          answers[QE] = { body: (answers[QE] as Reply).body, headers };
        },
        'is not URL-encoded',
      ],
      [
        'what has ended',
        () => {
          answers = repliesOf(collateralFrom(new Date(FROM.getTime() - 30 * DAY_MS), FROM));
        },
        'collateral_expired',
      ],
      [
        "another root's",
        () => {
          answers = repliesOf(collateralFrom(FROM, TO, strange));
        },
        'collateral_invalid',
      ],
      [
        "another authority's list",
        () => {
          const { pck_crl } = collateralFrom(FROM, TO, strange);
          answers[PCK_CRL] = { body: Buffer.from(pck_crl, 'hex'), headers: chainOf(answers[PCK_CRL]) };
        },
        'revocation_invalid',
      ],
      [
        'another platform',
        () => {
          const tcbInfo = { fmspc: '000000000000' };
          answers = repliesOf(makeCollateral(intel, { window: { from: FROM, to: TO }, tcbInfo }));
        },
        'collateral_invalid',
      ],
    ])('is %s, and nothing of it is kept', async (_, spoil, words) => {
      spoil();
      const error = await failure(endorse());
      expect([error.reason, error.retryable]).toEqual(['cpu_unavailable', true]);
      expect(error.message).toContain(words);
      expect(files()).toEqual([]);
    });

    test.each([
      ['that is none', quote.subarray(0, 600), 'cpu_malformed'],
      ['under another root', makeQuote(strange, makePck(strange)), 'root'],
      ['that nobody signed', Buffer.from(quote).fill(0xff, 600, 604), 'cpu_signature_invalid'],
    ])('is a quote %s, before anything is asked for', async (_, report, words) => {
      const error = await failure(endorse(create(), report));
      expect([error.reason, asked]).toEqual(['cpu_refused', []]);
      expect(error.message).toContain(words);
    });
  });

  describe('a service that fails', () => {
    test.each([
      ['hangs', () => {}],
      ['never ends', (response) => void response.writeHead(200).write('{')],
    ] satisfies [string, Answer][])('and %s is given up, and asked again after a minute', async (_, answer) => {
      const source = create({ timeout_ms: 50 });
      answers = Object.fromEntries(ALL.map((path) => [path, answer]));
      const error = await failure(endorse(source));
      expect([error.reason, error.retryable]).toEqual(['cpu_unavailable', true]);
      expect(error.message).toContain('did not answer within 50 ms');
      now_ms += MINUTE_MS - 1;
      expect((await failure(endorse(source))).message).toBe(error.message);
      expect(asked.toSorted()).toEqual(ALL);
      now_ms += 1;
      await failure(endorse(source));
      expect(asked).toHaveLength(8);
    });

    test('and says 429 is left alone for as long as it says', async () => {
      const source = create();
      answers[QE] = (response: ServerResponse) =>
        void response.writeHead(429, { 'retry-after': 'Mon, 01 Jun 2026 01:10:00 GMT' }).end();
      expect((await failure(endorse(source))).message).toContain('answered 429');
      await vi.waitFor(() => expect(asked.toSorted()).toEqual(ALL));
      answers = repliesOf(first);
      now_ms = Date.parse('2026-06-01T01:09:59Z');
      expect((await failure(endorse(source))).message).toContain('wants no request before 2026-06-01T01:10:00Z');
      expect(asked).toHaveLength(4);
      now_ms += MINUTE_MS;
      expect(await endorse(source)).toEqual(first);
    });

    test('an abort ends the wait', async () => {
      const abort = new AbortController();
      answers[TCB] = () => abort.abort(new Error('enough'));
      await expect(create().endorse({ report: quote }, abort.signal)).rejects.toThrow('enough');
    });
  });
});

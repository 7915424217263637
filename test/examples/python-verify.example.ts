// examples/python/verify.py beside our own verifier: the same verdicts, by the same check, on our vectors and on genuine evidence.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { withLastMember } from '../../proto/json.ts';
import { inputOf, type Vector, verifyOptions } from '../../scripts/vectors/vector.ts';
import { appraiseAttestation, appraiseEvidence, type Check, type CheckName } from '../../verify/index.ts';
import { usePython } from '../support/line-process.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { evidenceOf, h100, type NvidiaEvidence, text } from '../verify/gpu/genuine.ts';
import { AT, attest, EXCHANGE, PAYLOADS, simulatedRoot, streamed, transcript } from '../verify/maker.ts';
import { python, SKIPPED } from './python.ts';

/** What verify.py checks, in its order. */
const MADE: readonly CheckName[] = [
  'form',
  'raw_hash',
  'raw_members',
  'expected_exchange',
  'report_form',
  'report_nonce',
  'report_signature',
  'report_chain',
];
const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));
const VERIFY = fileURLToPath(new URL('../../examples/python/verify.py', import.meta.url));
const NEITHER = { without: { referenceValues: true, revocation: true } };

/** The first of our failed checks that verify.py makes too. */
function failed(checks: readonly Check[]): CheckName | null {
  const names = checks.filter(({ status }) => status === 'fail').map(({ name }) => name);
  return MADE.find((name) => names.includes(name)) ?? null;
}

describe.skipIf(python === null)(`verify.py${SKIPPED}`, () => {
  const driver = usePython(python, [fileURLToPath(new URL('verify_driver.py', import.meta.url))]);
  const ask = (question: object) => driver.ask<CheckName | null>({ root: null, ...question });

  describe('vectors of our own', () => {
    const files = readdirSync(join(VECTORS, 'cases')).map((file) => file.replace('.json', ''));
    it.each(files)('%s', async (file) => {
      const vector = JSON.parse(readFileSync(join(VECTORS, 'cases', `${file}.json`), 'utf8')) as Vector;
      const { options } = vector;
      const root =
        options.simulated_root_file === undefined
          ? null
          : readFileSync(join(VECTORS, options.simulated_root_file), 'utf8');
      const given = { at: options.at, root };
      if (vector.evidence !== undefined) {
        const { checks } = await appraiseEvidence(vector.evidence, verifyOptions(VECTORS, options));
        const got = await ask({ ...given, devices: vector.evidence });
        // That two are not one is said of an attestation; verify.py takes bare evidence one by one.
        expect(got).toBe(file === 'report_form.fail.one-device-twice' ? null : failed(checks));
        return;
      }
      const input = inputOf(VECTORS, vector);
      // What else a caller can say to our verifier, verify.py does not know.
      const { expected: { endpoint } = {}, max_characters: _limit, ...rest } = options;
      const known = { ...rest, expected: endpoint === undefined ? {} : { endpoint } };
      const { checks } = await appraiseAttestation(input, verifyOptions(VECTORS, known));
      const got = await ask({ ...given, endpoint, text: typeof input === 'string' ? input : JSON.stringify(input) });
      // A token that NVIDIA signed may stand alone; verify.py checks no token.
      expect(got).toBe(file === 'token_signature.pass.nras-without-evidence' ? 'report_form' : failed(checks));
    });
  });

  describe('the streams of our own vectors, saved with their attestations', () => {
    const cases = readdirSync(join(VECTORS, 'cases')).filter((file) => file.includes('-stream'));
    it.each(cases)('%s', async (file) => {
      const vector = JSON.parse(readFileSync(join(VECTORS, 'cases', file), 'utf8')) as Vector;
      const { expected, ...rest } = vector.options;
      const { transcript = '', ...asked } = expected ?? {};
      const saved = transcript.includes('"attestation":') ? transcript : carrying(transcript, inputOf(VECTORS, vector));
      const options = verifyOptions(VECTORS, { ...rest, expected: asked });
      const { checks } = await appraiseAttestation(new TextEncoder().encode(saved), options);
      const root = readFileSync(join(VECTORS, vector.options.simulated_root_file ?? ''), 'utf8');
      const got = await ask({ at: vector.options.at, root, ...asked, text: saved });
      const ours = failed(checks);
      expect(ours).toBe(
        file.includes('.pass.') ? null : file.includes('two-attestations') ? 'form' : 'expected_exchange',
      );
      // verify.py folds nothing.
      expect(got).toBe(/response-changed|another-form/.test(file) ? null : ours);
    });

    /** The stream with an attestation in its final event. */
    function carrying(stream: string, attestation: unknown): string {
      const member = `,"attestation":${JSON.stringify(attestation)}`;
      return stream.replace(
        /(data: (?:\{"type":"response\.completed".*\}|\{"type":"message_delta".*|.*"finish_reason":"stop".*))(\}\n)/,
        (_all, before, end) => {
          const [head, tail] = /response\.completed/.test(before) ? [before.slice(0, -1), `}${end}`] : [before, end];
          return `${head}${member}${tail}`;
        },
      );
    }
  });

  it.each([
    ['an attestation', 'parts/attestation.json'],
    ['one in a batch', 'cases/raw_hash.pass.batch-of-8.json'],
  ])(
    'accepts nothing that ours refuses by the same checks, whichever character of %s is another one',
    async (_name, file) => {
      const made = JSON.parse(readFileSync(join(VECTORS, file), 'utf8'));
      const text = JSON.stringify(made.attestation ?? made);
      const given = { at: '2025-06-01T12:00:00Z', root: readFileSync(join(VECTORS, 'parts/device-root.pem'), 'utf8') };
      const options = { ...NEITHER, at: new Date(given.at), simulatedRoot: given.root };
      expect(await ask({ ...given, text })).toBeNull();
      let refused = 0;
      for (let at = 0; at < text.length; at += 23) {
        const other = text[at] === 'A' ? 'B' : 'A';
        const changed = text.slice(0, at) + other + text.slice(at + 1);
        const ours = failed((await appraiseAttestation(changed, options)).checks);
        if (ours === null) continue;
        refused++;
        expect([at, await ask({ ...given, text: changed })]).not.toEqual([at, null]);
      }
      expect(refused).toBeGreaterThan(400);
    },
  );

  it('reads a stream as ours does: it has data, comments and empty lines, and nothing hides beside them', async () => {
    const answer = await attest(await streamed());
    const options = { ...NEITHER, at: AT, simulatedRoot };
    const both = async (stream: string) => {
      const ours = failed((await appraiseAttestation(new TextEncoder().encode(stream), options)).checks);
      expect([stream, await ask({ at: AT.toISOString(), root: simulatedRoot, text: stream })]).toEqual([stream, ours]);
      return ours;
    };
    const hidden = PAYLOADS[0]?.replace('"Hel"', '"Not: "');
    for (const newline of ['\n', '\r\n']) {
      const right = Buffer.from(transcript(answer, PAYLOADS, newline)).toString();
      expect(await both(right)).toBeNull();
      expect(await both(`: hello${newline}${newline}${right}`)).toBeNull();
      expect(await both(right.replace('data: [DONE]', 'data:[DONE]'))).toBeNull();
      expect(await both(right.replace(`data: [DONE]${newline}${newline}`, ''))).toBeNull();
      for (const line of ['event: message', 'event: thread.x'])
        expect(await both(right.replace('data: ', `${line}${newline}data: `))).toBe('expected_exchange');
      for (const line of ['event: \u00e9', 'event', 'id: 1', 'retry: 1', 'data', 'error: x', ' data: x'])
        expect(await both(right.replace('data: ', `${line}${newline}data: `))).toBe('form');
      for (const before of ['\ufeff', ': \u2028', ': \u0085', ': \v', ': \f', ': \0', ': x\r', '\r'])
        expect(await both(right.replace(`${newline}data: `, `${newline}${before}data: ${hidden}\n\ndata: `))).toBe(
          'form',
        );
      expect(await both(`data: ${hidden}\n\n${right}`)).toBe('expected_exchange');
      expect(await both(`${right}data: ${hidden}\n\n`)).toBe('form');
    }
    expect(await both(Buffer.from(transcript(answer, PAYLOADS, '\r')).toString())).toBe('form');
  });

  it('wants of the stream in raw what ours wants', async () => {
    const { stream } = await streamed();
    const { sha256 } = stream ?? {};
    const given = { at: AT.toISOString(), root: simulatedRoot };
    for (const [member, check] of [
      [stream, null],
      [null, 'raw_members'],
      [{}, 'raw_members'],
      [[], 'raw_members'],
      [
        [
          ['events', 1],
          ['sha256', sha256],
        ],
        'raw_members',
      ],
      [{ sha256, events: 1 }, 'raw_members'],
      [{ events: '1', sha256 }, 'raw_members'],
      [{ events: 1.5, sha256 }, 'raw_members'],
      [{ events: 1, sha256: 'x' }, 'raw_members'],
      [{ events: 1, sha256, more: 1 }, 'raw_members'],
    ] as const) {
      const answer = await attest({ ...EXCHANGE, response: `${EXCHANGE.response},"stream":${JSON.stringify(member)}` });
      const { checks } = await appraiseAttestation(answer, { ...NEITHER, at: AT, simulatedRoot });
      expect([member, failed(checks)]).toEqual([member, check]);
      expect([member, await ask({ ...given, text: JSON.stringify(answer) })]).toEqual([member, check]);
    }
  });

  it('takes a whole answer with space around it, in its file or as the backend sent it', async () => {
    const given = { at: AT.toISOString(), root: simulatedRoot };
    const asked = async (response: string, change: (text: string) => string) => {
      const answer = await attest({ ...EXCHANGE, response });
      return ask({ ...given, text: change(withLastMember(response, 'attestation', JSON.stringify(answer))) });
    };
    for (const response of [EXCHANGE.response, `${EXCHANGE.response}\n`, `\n ${EXCHANGE.response}\r\n`])
      expect(await asked(response, (text) => text)).toBeNull();
    expect(await asked(EXCHANGE.response, (text) => ` ${text}\n`)).toBeNull();
    expect(await asked(EXCHANGE.response, (text) => `${text.replace('Hello', 'Hello ')}\n`)).toBe('expected_exchange');
  });

  it('takes nothing beside the response of an event for that response', async () => {
    const stream = { events: 1, sha256: '0'.repeat(64) };
    const response = '{"id":"resp_1","object":"response","output":[]}';
    const answer = await attest({ ...EXCHANGE, endpoint: '/v1/responses', response, stream });
    const evil = response.replace('[]', '["evil"]');
    const carrying = (text: string) => withLastMember(text, 'attestation', JSON.stringify(answer));
    for (const [text, check] of [
      [`{"type":"response.completed","response":${carrying(response)}}`, null],
      [`{"type":"response.completed","response": ${carrying(response)} ,"sequence_number":1}`, null],
      [`{"type":"response.completed","response":${carrying(evil)}}`, 'expected_exchange'],
      [`{"type":"response.completed","attestation":1,"response":${carrying(response)}}`, 'form'],
      [`{"type":"response.completed","output":1,"response":${carrying(response)}}`, 'form'],
    ] as const) {
      const { checks } = await appraiseAttestation(text, { ...NEITHER, at: AT, simulatedRoot });
      const got = await ask({ at: AT.toISOString(), root: simulatedRoot, text });
      expect([text.slice(0, 60), failed(checks), got]).toEqual([text.slice(0, 60), check, check]);
    }
    for (const hidden of [`"a":"response","b":${response},`, `"a":{"response":${response}},`]) {
      const text = `{"type":"response.completed",${hidden}"response":${carrying(evil)}}`;
      expect(await ask({ at: AT.toISOString(), root: simulatedRoot, text })).toMatch(/^(form|expected_exchange)$/);
    }
    const delta = carrying('{"type":"message_delta","delta":{},"usage":"evil"}');
    expect(await ask({ at: AT.toISOString(), root: simulatedRoot, text: delta })).toBe('expected_exchange');
  });

  it('takes a time without a zone', () => {
    const file = (name: string) => join(VECTORS, 'parts', name);
    const given = [VERIFY, file('attestation.json'), '--simulated-root', file('device-root.pem'), '--at'];
    for (const at of ['2025-06-01T12:00:00', '2025-06-01', '2025-06-01T12:00:00+00:00']) {
      const { status, stdout } = spawnSync(python ?? '', [...given, at], { encoding: 'utf8' });
      expect([status, stdout]).toEqual([0, expect.stringContaining('\nVALID as far as')]);
    }
  });

  describe.skipIf(!vectorsPresent)("genuine evidence, under NVIDIA's root", () => {
    const at = '2025-09-01T00:00:00Z';
    const same = async (device: NvidiaEvidence) => {
      const { checks } = await appraiseEvidence([device], { ...NEITHER, at: new Date(at) });
      const ours = failed(checks);
      expect(await ask({ at, devices: [device] })).toBe(ours);
      return ours;
    };

    it('passes what is right: H100 (four drivers), Blackwell, switch', async () => {
      const [driver590] = JSON.parse(text('h100-590.12/evidence.json')) as NvidiaEvidence[];
      for (const device of [
        h100(),
        evidenceOf('HOPPER', 'h100-545.00', 'report.hex'),
        driver590 as NvidiaEvidence,
        evidenceOf('BLACKWELL', 'blackwell-575.32', 'report.hex'),
        evidenceOf('LS10', 'switch-ls10', 'report.hex'),
      ])
        expect(await same(device)).toBeNull();
    });

    it('refuses broken signatures, another chain, another architecture, another nonce', async () => {
      const b = evidenceOf('HOPPER', 'h100-545.00', 'report.hex');
      expect(await same(evidenceOf('HOPPER', 'h100-535.86.09', 'report-invalid-signature.hex'))).toBe(
        'report_signature',
      );
      expect(await same(evidenceOf('LS10', 'switch-ls10', 'report-invalid-signature.hex'))).toBe('report_signature');
      expect(await same({ ...h100(), certificate: b.certificate })).toBe('report_signature');
      expect(await same({ ...h100(), arch: 'BLACKWELL' })).toBe('report_chain');
      expect(await same({ ...h100(), nonce: '00'.repeat(32) })).toBe('report_nonce');
    });

    it('refuses a report of which any one byte was changed', async () => {
      const bytes = Buffer.from(h100().evidence, 'base64');
      for (let at_byte = 0; at_byte < bytes.length; at_byte += 61) {
        const changed = Uint8Array.from(bytes);
        changed[at_byte] = (changed[at_byte] ?? 0) ^ 0x10;
        const device = { ...h100(), evidence: Buffer.from(changed).toString('base64') };
        expect([at_byte, await ask({ at, devices: [device] })]).toEqual([
          at_byte,
          expect.stringMatching(/^report_(form|nonce|signature)$/),
        ]);
      }
    });
  });
});

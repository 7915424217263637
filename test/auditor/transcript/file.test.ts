// The sink that keeps a transcript in a file, and the verifying fetch that hands it each proven exchange.
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { transcriptFile } from '../../../auditor/transcript/file.ts';
import { type TranscriptRecord, verifyingFetch } from '../../../verify/clients/fetch.ts';
import { createBundles, verifyAttestation } from '../../../verify/index.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const service = useService();
let folder: Folder;
beforeAll(() => {
  folder = temporaryFolder();
});
afterAll(() => folder.remove());

const simulatedRoot = () => service.sidecar.attester.simulated?.root;
const post = (send: typeof fetch, more = '') =>
  send(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: `{"model":"m","messages":[{"role":"user","content":"Hi"}]${more}}`,
  });
const record = (nonce: string, bundle: string | null = null): TranscriptRecord => ({
  endpoint: '/v1/chat/completions',
  attestation: { raw: '{}', nonce, ...(bundle === null ? {} : { bundle: 'b' }) },
  bundle,
});
const read = (path: string) => readFileSync(path, 'utf8');

describe('a verifying fetch with a transcript', () => {
  it.each([
    ['whole', ''],
    ['streamed', ',"stream":true'],
  ])('hands over each proven exchange, %s, before its answer', async (_name, more) => {
    service.backend.script = more === '' ? chatAnswer('Hello.') : chatStream(['Hel', 'lo.']);
    const kept: TranscriptRecord[] = [];
    const order: string[] = [];
    const send = verifyingFetch({
      simulatedRoot: simulatedRoot(),
      transcript: async (one) => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        order.push('kept');
        kept.push(one);
      },
      onVerified: () => order.push('verified'),
    });
    const text = await (await post(send, more)).text();
    expect([order, text.includes('finish_reason')]).toEqual([['kept', 'verified'], true]);
    expect(kept).toMatchObject([{ endpoint: '/v1/chat/completions', bundle: null }]);
    const verified = await verifyAttestation(JSON.stringify(kept[0]?.attestation), { simulatedRoot: simulatedRoot() });
    expect(verified.exchange.response).toContain('Hello.');
  });

  it('keeps a compact attestation as it came, with its bundle', async () => {
    service.backend.script = chatAnswer('Hello.');
    const kept: TranscriptRecord[] = [];
    const transcript = (one: TranscriptRecord) => void kept.push(one);
    await (await post(verifyingFetch({ simulatedRoot: simulatedRoot(), compact: true, transcript }))).text();
    const { attestation, bundle } = kept[0] as TranscriptRecord;
    expect(Object.keys(attestation).sort()).toEqual(['batch', 'bundle', 'nonce', 'raw']);
    const bundles = createBundles();
    await bundles.add(bundle ?? '');
    const verified = await verifyAttestation(attestation, { simulatedRoot: simulatedRoot(), bundles });
    expect(verified.valid).toBe(true);
  });

  it('hands over no answer that the transcript did not take, and the next one again', async () => {
    service.backend.script = chatAnswer('Hello.');
    const path = join(folder.path, 'full.jsonl');
    const told: string[] = [];
    const onUnproven = ({ code }: { code: string }) => void told.push(code);
    const full = verifyingFetch({
      simulatedRoot: simulatedRoot(),
      transcript: transcriptFile(path, { maxBytes: 50 }),
      onUnproven,
    });
    const refused = await post(full);
    expect([refused.status, ((await refused.json()) as { error: { code: string } }).error.code, told]).toEqual([
      400,
      'transcript_failed',
      ['transcript_failed'],
    ]);
    service.backend.script = chatStream(['Hello.']);
    await expect(post(full, ',"stream":true').then((response) => response.text())).rejects.toMatchObject({
      code: 'transcript_failed',
    });
    expect(read(path)).toBe('');
    service.backend.script = chatAnswer('Hello.');
    expect(
      (await post(verifyingFetch({ simulatedRoot: simulatedRoot(), transcript: transcriptFile(path) }))).status,
    ).toBe(200);
    expect(read(path)).toMatch(/^\{"raw":.*\}\n$/);
  });

  it('keeps nothing that is not proven', async () => {
    service.backend.script = chatAnswer('Hello.');
    const kept: unknown[] = [];
    const between: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      return new Response((await response.text()).replace('Hello.', 'Hallo.'), { headers: response.headers });
    };
    const transcript = (one: unknown) => void kept.push(one);
    const send = verifyingFetch({ simulatedRoot: simulatedRoot(), fetch: between, transcript });
    expect([(await post(send)).status, kept]).toEqual([400, []]);
  });
});

describe('the file', () => {
  it('has a line for each exchange, and a bundle once, before the first that names it', async () => {
    const path = join(folder.path, 'a.jsonl');
    const sink = transcriptFile(path);
    await Promise.all([sink(record('1', '{"token":"t"}')), sink(record('2')), sink(record('3', '{"token":"t"}'))]);
    await sink.close();
    const own = (nonce: string, more = '') => `{"raw":"{}","nonce":"${nonce}"${more}}\n`;
    expect(read(path)).toBe(`{"token":"t"}\n${own('1', ',"bundle":"b"')}${own('2')}${own('3', ',"bundle":"b"')}`);
    expect(statSync(path).mode & 0o077).toBe(0);
    await sink(record('4'));
    await sink.close();
    expect(read(path).endsWith(own('4'))).toBe(true);
  });

  it.each([
    ['', ''],
    ['{"raw":"{}","nonce":"0"}\n', '{"raw":"{}","nonce":"0"}\n'],
    ['{"raw":"{}","nonce":"0"}\n{"raw":"cu', '{"raw":"{}","nonce":"0"}\n'],
    ['{"r', ''],
    [`{"raw":"{}","nonce":"0"}\n{"raw":"${'x'.repeat(200_000)}`, '{"raw":"{}","nonce":"0"}\n'],
  ])('loses only a line that an earlier process could not finish: %#', async (before, left) => {
    const path = join(folder.path, 'b.jsonl');
    writeFileSync(path, before);
    const sink = transcriptFile(path);
    await sink(record('1'));
    await sink.close();
    expect(read(path)).toBe(`${left}{"raw":"{}","nonce":"1"}\n`);
  });

  it('takes no file that is not a transcript, leaves it as it is, and goes on once it is away', async () => {
    const path = join(folder.path, 'c.jsonl');
    const sink = transcriptFile(path);
    for (const text of ['notes\n', '{"a":1}']) {
      writeFileSync(path, text);
      await expect(sink(record('1'))).rejects.toThrow('not a transcript');
      expect(read(path)).toBe(text);
    }
    writeFileSync(path, '');
    await sink(record('1'));
    await sink.close();
    expect(read(path)).toContain('"nonce":"1"');
    await expect(transcriptFile(join(folder.path, 'no/where'))(record('1'))).rejects.toThrow('ENOENT');
    expect(() => transcriptFile(path, { maxBytes: 0 })).toThrow(TypeError);
    expect(existsSync(join(folder.path, 'no'))).toBe(false);
  });
});

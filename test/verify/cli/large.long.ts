// The command line over a transcript as large as a gateway of default limits attests, which takes many seconds to make and to verify.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { foldPayloads } from '../../../proto/stream/fold.ts';
import { commandLine } from '../../support/cli.ts';
import { temporaryFolder } from '../../support/harness.ts';
import { AT, attest, EXCHANGE, PAYLOADS, simulatedRoot, streamed, transcript } from '../maker.ts';

const run = commandLine();

it('takes a transcript as large as a gateway of default limits attests', async () => {
  const folder = temporaryFolder();
  const file = (name: string, content: string | Buffer) => {
    const path = join(folder.path, name);
    writeFileSync(path, content);
    return path;
  };
  const MI = 2 ** 20;
  const request = EXCHANGE.request.replace('Hi ', '\\"'.repeat(7.5 * MI));
  const [first = '', second = '', last = ''] = PAYLOADS;
  const payloads = [first, ...Array.from({ length: 12 }, () => second.replace('lo. ', '\\n'.repeat(MI))), last];
  const parts = { ...(await streamed(payloads)), request, response: foldPayloads(payloads) };
  const saved = file('large.txt', Buffer.from(transcript(await attest(parts), payloads)));
  const given = ['--allow-simulated', file('test-root.pem', simulatedRoot), '--at', AT.toISOString(), '--offline'];
  const { status, stdout } = run('verify', saved, ...given);
  expect([status, stdout]).toEqual([0, expect.stringContaining('the 14 events of the stream, byte for byte')]);
  folder.remove();
}, 60_000);

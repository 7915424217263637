// A driver whose reports NVIDIA's Python SDK cannot read: the sidecar says so, and chooses nvattest by itself where it can.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { createAttester } from '../../../../sidecar/choose.ts';
import type { Attester } from '../../../../sidecar/common/attester.ts';
import { loadConfig } from '../../../../sidecar/common/config.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { freshNonce } from '../../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { SOCKET_FILE } from '../../../twin/library.ts';
import { writeNvattest } from '../../../twin/nvattest.ts';
import { plainAttest } from '../../../twin/plain.ts';
import { startTwin, type Twin } from '../../../twin/twin.ts';

const lacks = inject('twinLacks');

describe.skipIf(lacks !== null)(
  `a driver with the newer report format${lacks === null ? '' : `, SKIPPED without ${lacks}`}`,
  () => {
    let twin: Twin;
    let folder: Folder;
    const lines: string[] = [];
    const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });

    beforeAll(async () => {
      twin = await startTwin(2);
      twin.faults.new_format = true;
      folder = temporaryFolder();
    });
    afterAll(async () => {
      await twin?.close();
      folder?.remove();
    });

    /** As the sidecar makes it from its settings; `version` of nvattest, null: not installed. */
    async function attesterWith(version: string | null): Promise<Attester> {
      const bin = join(folder.path, `bin-${version}`);
      mkdirSync(bin, { recursive: true });
      const socket = join(twin.environment.LD_LIBRARY_PATH ?? '', SOCKET_FILE);
      if (version !== null) writeNvattest(join(bin, 'nvattest'), socket, twin.devices.length, version);
      const { LD_LIBRARY_PATH } = twin.environment;
      const settings = { ATTESTER: 'nvtrust', NVTRUST_VENV: twin.venv, LD_LIBRARY_PATH };
      const { rim_url, ocsp_url } = twin.services;
      return createAttester(
        loadConfig({
          PATH: `${bin}:${process.env.PATH}`,
          ...settings,
          RIM_URL: rim_url,
          OCSP_URL: ocsp_url,
          COLLATERAL_DIR: join(folder.path, 'collateral'),
        }),
        log,
      );
    }

    test("NVIDIA's SDK does not say true", async () => {
      expect((await plainAttest(twin, freshNonce())).result).toBe(false);
    });

    test.each([
      [
        'without nvattest',
        null,
        /^new_format: nvtrust: new_format: this driver signs reports in a format newer.*ATTESTER=nvattest cannot run here: no_nvattest/,
      ],
      [
        'with an nvattest before 2.0.0',
        '1.2.1',
        /^new_format: .*nvattest_old: nvattest 1\.2\.1 cannot read.*install 2\.0\.0/,
      ],
    ])('%s it is refused in words', async (_what, version, words) => {
      const attester = await attesterWith(version);
      const refused = await attester.attest(freshNonce(), AbortSignal.timeout(20_000)).catch((error: Error) => error);
      console.log((refused as Error).message);
      expect(refused).toMatchObject({ retryable: false, message: expect.stringMatching(words) });
      expect(attester.name).toBe('nvtrust');
      await attester.close();
    });

    test('with one that can read it, that is used, with a line in the log', async () => {
      const attester = await attesterWith('2.0.0');
      expect(attester.name).toBe('nvtrust');
      for (let i = 0; i < 2; i++) {
        const nonce = freshNonce();
        const collected = await attester.attest(nonce, AbortSignal.timeout(30_000));
        await checkCollected(collected, nonce, {
          ...attester,
          devices: attester.devices,
          simulated: { root: twin.roots.device },
        });
      }
      expect(attester.name).toBe('nvattest');
      expect(attester.devices).toHaveLength(2);
      const said = lines.filter((line) => line.includes('"attester":"nvattest"'));
      expect(said).toHaveLength(1);
      console.log(said[0]?.trim());
      await attester.close();
    });
  },
);

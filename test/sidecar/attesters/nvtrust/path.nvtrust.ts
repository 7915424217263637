// NVIDIA's own Python verifier, unmodified, over a simulated GPU: it says true for our nonce, from a chat to the last check.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { createNvtrustAttester } from '../../../../sidecar/attesters/nvtrust/nvtrust.ts';
import { loadConfig } from '../../../../sidecar/common/config.ts';
import { appraiseAttestation, createCollateral } from '../../../../verify/index.ts';
import { parseToken } from '../../../../verify/token/token.ts';
import { freshNonce, never } from '../../../support/attest.ts';
import { CHAT, chat } from '../../../support/client.ts';
import { eventually, temporaryFolder } from '../../../support/harness.ts';
import { plainAttest } from '../../../twin/plain.ts';
import { type Stage, startStage } from '../../../twin/stage.ts';

const lacks = inject('twinLacks');

describe.skipIf(lacks !== null)(`NVIDIA's verifier${lacks === null ? '' : `, SKIPPED without ${lacks}`}`, () => {
  describe.each([1, 2])('over %i GPU(s)', (count) => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await startStage(count);
    });
    afterAll(() => stage?.close());

    it('says true for a fresh nonce of ours, through the attester', async () => {
      const nonce = freshNonce();
      const { token, evidence } = await stage.sidecar.attester.attest(nonce, never);
      const said = parseToken(token);
      expect(said).toMatchObject({ kind: 'nvtrust', overallResult: true, issuer: 'LOCAL_GPU_VERIFIER' });
      expect(new Set(said.nonces)).toEqual(new Set([nonce]));
      expect(said.devices).toHaveLength(count);
      expect(evidence).toHaveLength(count);
      for (const { report } of evidence) expect(Buffer.from(report, 'base64').toString('hex', 4, 36)).toBe(nonce);
      console.log(`NVIDIA's verifier over ${count} GPU(s): ${said.overallResult}, eat_nonce ${nonce.slice(0, 16)}…`);
    });

    it("asks NVIDIA's services nothing for a second signature", async () => {
      const { served } = stage.twin.services;
      await stage.sidecar.attester.attest(freshNonce(), never);
      const before = { ...served };
      await stage.sidecar.attester.attest(freshNonce(), never);
      expect(served).toEqual(before);
      await plainAttest(stage.twin, freshNonce());
      const [rim, ocsp] = [served.rim - before.rim, served.ocsp - before.ocsp];
      console.log(
        `${count} GPU(s), NVIDIA's verifier by itself: ${rim} reference values and ${ocsp} statuses a signature; here 0`,
      );
      expect(rim + ocsp).toBeGreaterThan(count * 8);
    });

    it('says the same without us', async () => {
      expect((await plainAttest(stage.twin, freshNonce())).result).toBe(true);
    });

    it('stands behind a chat with tee, and the answer passes every check of ours', async () => {
      const asked = JSON.stringify({ ...CHAT, tee: true });
      const got = await chat(stage.gateway.url, asked);
      expect(got.status).toBe(200);
      const { attestation } = got.json();
      expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw).digest('hex'));
      const { rim_url, ocsp_url } = stage.twin.services;
      const report = await appraiseAttestation(got.text, {
        simulatedRoot: stage.twin.roots.device,
        roots: { rim: stage.twin.roots.rim },
        collateral: createCollateral({ fetch, rim_url, ocsp_url }),
        expected: { request: asked, response: got.text },
      });
      expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
      expect(report.valid).toBe(true);
      expect(report.claims).toMatchObject({ simulated: true, nonce: attestation.nonce });
    });

    it('is refused in words where there is no driver', async () => {
      const { worker_environment: environment, nvtrust_workers: workers } = loadConfig({ PATH: process.env.PATH });
      await expect(createNvtrustAttester({ venv: stage.twin.venv, environment, workers })).rejects.toMatchObject({
        message: expect.stringMatching(/^ATTESTER=nvtrust cannot run here: no_driver: NVML: .*Not Found/),
      });
    });

    it('has no worker left when its sidecar is gone', async () => {
      const [cwd, worker] = [
        temporaryFolder(),
        fileURLToPath(new URL('../../../../sidecar/attesters/nvtrust/python/worker.py', import.meta.url)),
      ];
      const child = spawn(join(stage.twin.venv, 'bin/python'), [worker], {
        cwd: cwd.path,
        env: { ...stage.twin.environment },
        stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'],
      });
      const ended = once(child, 'exit');
      const [requests, answers] = [child.stdio[3] as Writable, child.stdio[4] as Readable];
      expect(String((await once(answers, 'data'))[0])).toContain('"ready"');
      stage.twin.faults.hang.add('nvmlDeviceGetConfComputeGpuAttestationReport');
      requests.write(`{"type":"attest","nonce":"${'0'.repeat(64)}"}\n`);
      await eventually(() => stage.twin.nvml.hanging > 0);
      requests.destroy();
      expect((await ended)[0]).toBe(1);
      stage.twin.faults.hang.clear();
      cwd.remove();
    });

    it('answers each of several requests at once for its own nonce, in order', async () => {
      const answers = await Promise.all(
        Array.from({ length: 6 }, (_, n) => chat(stage.gateway.url, { ...CHAT, n: 1, user: `u${n}`, tee: true })),
      );
      for (const [n, got] of answers.entries()) {
        const { raw, nonce, token } = got.json().attestation;
        expect(raw).toContain(`"user":"u${n}"`);
        expect(nonce).toBe(createHash('sha256').update(raw).digest('hex'));
        expect(new Set(parseToken(token).nonces)).toEqual(new Set([nonce]));
      }
    });
  });
});

// A relay in front of an honest gateway, which puts a session of its own beside the honest GPU's signature.
import { hash } from 'node:crypto';
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import type { CpuCollector } from '../../../sidecar/cpu/cpu-collector.ts';
import { verifyingFetch } from '../../../verify/clients/fetch.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT } from '../../support/client.ts';
import { type Folder, type Service, startService, temporaryFolder } from '../../support/harness.ts';
import type { Made } from '../../verify/maker.ts';
import { type MadeSession, makeSession, signAnswer } from '../../verify/session-maker.ts';

let folder: Folder;
let service: Service;
let simulatedRoot: string;
let collector: CpuCollector;
let relay: MadeSession;
const server = createServer(async (request, response) => {
  const body = await new Response(request as never, { headers: {} }).text();
  const got = await fetch(service.gateway.url + request.url, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json' },
  });
  const { attestation, ...answer } = (await got.json()) as { attestation: Made };
  // The answer may be one of a batch, whose nonce is not the hash of raw.
  const own = { ...attestation, nonce: hash('sha256', attestation.raw) };
  const cpu = { ...relay.cpu, signature: signAnswer(relay, own) };
  response
    .setHeader('content-type', 'application/json')
    .end(JSON.stringify({ ...answer, attestation: { ...attestation, cpu } }));
});

beforeAll(async () => {
  folder = temporaryFolder();
  collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  service = await startService({}, { cpu: { collector, required: true } });
  service.backend.script = chatAnswer('Hello.');
  simulatedRoot = `${service.sidecar.attester.simulated?.root}${collector.simulated?.root}`;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(async () => {
  server.close();
  await service.close();
  folder.remove();
});

const without = { referenceValues: true, revocation: true };

test("is refused, though its guest lists the honest machine's GPU; the gateway itself is proven", async () => {
  const seen: (string | null)[] = [];
  const ask = verifyingFetch({ simulatedRoot, without, onUnproven: ({ code }) => void seen.push(code) });
  const chat = async (url: string) => {
    const headers = { 'content-type': 'application/json' };
    return (await ask(`${url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(CHAT), headers })).text();
  };
  const honest = await chat(service.gateway.url);
  expect(honest).toContain('Hello.');
  const { devices } = JSON.parse(JSON.parse(honest).attestation.cpu.statement);
  const now = Math.floor(Date.now() / 1000);
  const processor = async (reportData: Buffer) => ({
    ...(await collector.collect(reportData, AbortSignal.timeout(5_000))),
  });
  relay = await makeSession({ processor, statement: { devices, not_before: now - 60, not_after: now + 600 } });
  const { port } = server.address() as { port: number };
  expect(await chat(`http://127.0.0.1:${port}`)).not.toContain('Hello.');
  expect(seen).toEqual(['session_mismatch']);
  expect(await chat(service.gateway.url)).toContain('Hello.');
  expect(seen).toHaveLength(1);
});

// openai of Python through `countersign proxy`, as a process before a gateway that takes sealed requests only.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { chatAnswer } from '../../support/backend.ts';
import { eventually, type Folder, type Service, startService, temporaryFolder } from '../../support/harness.ts';
import { type RunningProcess, startProcess } from '../../support/process.ts';
import { makeVenv } from '../../support/venv.ts';

const PROGRAM = `
from openai import OpenAI
client = OpenAI()
ask = dict(model="m", messages=[{"role": "user", "content": "Hi"}])
print(client.chat.completions.create(**ask).choices[0].message.content)
`;
const python = makeVenv();
let folder: Folder;
let service: Service;
let proxy: RunningProcess;

beforeAll(async () => {
  folder = temporaryFolder();
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  service = await startService({ SEALED: 'required' }, { cpu: { collector, required: true } });
  service.backend.script = chatAnswer('Hello.');
  const roots = join(folder.path, 'roots.pem');
  writeFileSync(roots, (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? ''));
  await eventually(async () =>
    (await (await fetch(`${service.gateway.url}/v1/attestation/session`)).text()).includes('\\"hpke\\":\\"'),
  );
  const options = ['--port', '0', '--allow-simulated', roots, '--offline', '--min-level', 'none'];
  proxy = startProcess('bin/countersign.js', ['proxy', '--gateway', service.gateway.url, ...options]);
  await eventually(() => proxy.output().includes('API key') || proxy.child.exitCode !== null);
});
afterAll(async () => {
  await proxy.kill('SIGKILL');
  await service.close();
  folder.remove();
});

it.skipIf(python === null)(
  `openai of Python has its answers${python === null ? ', SKIPPED: PyPI cannot be reached' : ''}`,
  async () => {
    const [, base = '', key = ''] = /^base URL {2}(\S+)\nAPI key {3}(\S+)$/m.exec(proxy.output()) ?? [];
    const env = { PATH: process.env.PATH, OPENAI_BASE_URL: base, OPENAI_API_KEY: key };
    const { stdout } = await promisify(execFile)(python ?? '', ['-c', PROGRAM], { env });
    expect(stdout).toBe('Hello.\n');
  },
  60_000,
);

import { expect, it } from 'vitest';
import { startProcess } from '../support/process.ts';

it.each([
  ['demo/main.ts', 'countersign: the options are --model, --gpus, --collection-ms, --cpu, --cpu-ms, --root-dir'],
  ['gateway/main.ts', 'gateway: there are no options'],
  ['sidecar/main.ts', 'sidecar: there are no options'],
])(
  '%s starts nothing with options, that it does not have, and says where its settings are',
  async (script, words) => {
    for (const option of ['--help', '--port=9000']) {
      const process = startProcess(script, [option], { BACKEND_URL: 'http://127.0.0.1:1/v1', PORT: '0' });
      const end = setTimeout(() => void process.kill('SIGKILL'), 10_000);
      const { code } = await process.exited;
      clearTimeout(end);
      expect([code, process.output()]).toEqual([
        1,
        `${words}: settings are environment variables, all of them in docs/configuration.md\n`,
      ]);
    }
  },
  30_000,
);

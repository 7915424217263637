// The decoders of the clients for Python, each in a process that reads a list of answers a line: openai, httpx-sse.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { pinned } from '../clients/venv.ts';
import { type Answer, canonical, type Decoder, type Reading } from './reading.ts';

const SCRIPT = fileURLToPath(new URL('decode.py', import.meta.url));

async function decoder(python: string, client: string, gives: Decoder['gives']): Promise<Decoder> {
  const child = spawn(python, [SCRIPT, client], {
    env: { PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: '1', PYTHONIOENCODING: 'utf-8' },
  });
  let errors = '';
  child.stderr.on('data', (data) => {
    errors += data;
  });
  child.stdin.on('error', () => {}); // what ended it is told by its last line
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const hear = async (): Promise<unknown> => {
    const line = await lines.next();
    if (line.done === true) throw new Error(`${SCRIPT} ${client} ended:\n${errors}`);
    return JSON.parse(line.value);
  };
  await hear(); // "ready"
  return {
    name: pinned(client),
    gives,
    async read(answers) {
      child.stdin.write(`${JSON.stringify(answers.map(asJson))}\n`);
      const readings = (await hear()) as { read: unknown[]; threw: string | null }[];
      return readings.map(
        ({ read, threw }): Reading => ({ read: gives === 'texts' ? (read as string[]) : read.map(canonical), threw }),
      );
    },
    close: async () => void child.kill(),
  };
}

const asJson = ({ status, type, pieces, broken }: Answer) => ({
  status,
  type,
  pieces: pieces.map((piece) => Buffer.from(piece).toString('base64')),
  broken: broken !== null,
});

export const pythonDecoders = (python: string): Promise<Decoder[]> =>
  Promise.all([decoder(python, 'openai', 'values'), decoder(python, 'httpx-sse', 'texts')]);

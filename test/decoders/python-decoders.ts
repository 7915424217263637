// The decoders of the clients for Python, each in a process that reads a list of answers a line: openai, httpx-sse.
import { fileURLToPath } from 'node:url';
import { LineProcess } from '../support/line-process.ts';
import { pinned } from '../support/venv.ts';
import { type Answer, canonical, type Decoder, type Reading } from './reading.ts';

const SCRIPT = fileURLToPath(new URL('decode.py', import.meta.url));

async function decoder(python: string, client: string, gives: Decoder['gives']): Promise<Decoder> {
  const program = new LineProcess(python, [SCRIPT, client], { PYTHONIOENCODING: 'utf-8' });
  await program.ready();
  return {
    name: pinned(client),
    gives,
    async read(answers) {
      const readings = await program.ask<{ read: unknown[]; threw: string | null }[]>(answers.map(asJson));
      return readings.map(
        ({ read, threw }): Reading => ({ read: gives === 'texts' ? (read as string[]) : read.map(canonical), threw }),
      );
    },
    close: async () => program.end(),
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

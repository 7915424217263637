// The process in which it is counted. It gets `planted` or `readers`, and a text that the names of readers must hold; it prints JSON.
import { type Growth, growthOf, startCounting } from './counter.ts';
import type { Given } from './readers.ts';

startCounting();

const PLANTED = 2_048;
/** The work over four times as much, where an input is read to its end. */
const IS_READ = 1.5;
const [what, wanted = ''] = process.argv.slice(2);

function givenOf(made: string, encoding: 'utf8' | 'latin1'): Given {
  const bytes = Buffer.from(made, encoding);
  const cut = (size: number) => {
    const pieces: Buffer<ArrayBuffer>[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(Buffer.from(bytes.subarray(at, at + size)));
    return pieces;
  };
  return { s: bytes.toString(encoding), bytes, cut };
}

async function planted() {
  const { LINEAR, QUADRATIC } = await import('./planted.ts');
  const found: Record<string, boolean> = {};
  for (const [name, begin] of Object.entries({ ...QUADRATIC, ...LINEAR }))
    found[name] = (await growthOf(async (n) => begin(n), PLANTED)).steep;
  return found;
}

async function readers() {
  const { KINDS } = await import('./inputs.ts');
  const { READERS } = await import('./readers.ts');
  const found: Record<string, string[]> = {};
  for (const { name, kinds, read } of READERS.filter((row) => row.name.includes(wanted))) {
    const wrong: string[] = [];
    let isRead = false;
    for (const kind of kinds)
      for (const [input, make] of Object.entries<(n: number) => string | Promise<string>>(KINDS[kind].makes)) {
        const { most, encoding } = KINDS[kind];
        const begin = async (n: number) => {
          const given = givenOf(await make(n), encoding);
          return () => read(given);
        };
        const { steep, counts, thrown }: Growth = await growthOf(begin, most / 4);
        isRead ||= (counts[2] ?? 0) > IS_READ * (counts[0] ?? 0);
        if (steep) wrong.push(`${counts.map(Math.round).join(', ')} operations: ${kind}: ${input}`);
        if (thrown instanceof TypeError || thrown instanceof ReferenceError) wrong.push(`${kind}: ${input}: ${thrown}`);
      }
    found[name] = isRead ? wrong : [...wrong, 'it reads none of its inputs'];
  }
  return found;
}

process.stdout.write(JSON.stringify(what === 'planted' ? await planted() : await readers()));
process.exit(0);

// The process in which it is counted: `planted`, or `readers` and which part of them (`0/2`: the first of two), and then texts
// that the names of readers and of productions must hold. Writes what it found to its standard output, as JSON.
import { startCounting } from './counter.ts';

startCounting();

const { growthOf, MAX_GROWTH } = await import('./growth.ts');
const [what, which = '0/1', wanted = '', produced = ''] = process.argv.slice(2);

if (what === 'planted') await planted();
else await readers();

async function planted(): Promise<void> {
  const { PLANTED } = await import('./planted.ts');
  const found: Record<string, { readonly quadratic: boolean; readonly steep: boolean }> = {};
  for (const [name, { quadratic, begin }] of Object.entries(PLANTED)) {
    const { times } = await growthOf(async (n) => begin(Math.ceil(n)), 2_048);
    found[name] = { quadratic, steep: times > MAX_GROWTH };
  }
  say(found);
}

async function readers(): Promise<void> {
  const { makeWorld } = await import('../../scripts/vectors/world.ts');
  const { streamFormats } = await import('./formats-streams.ts');
  const { textFormats } = await import('./formats-text.ts');
  const { derFormats } = await import('./formats-der.ts');
  const { xmlFormats } = await import('./formats-xml.ts');
  const { cpuFormats } = await import('./formats-cpu.ts');
  const { httpFormats } = await import('./formats-http.ts');
  const { sealedFormats } = await import('./formats-sealed.ts');
  const { readers: ofAll } = await import('./readers.ts');
  const { gatewayReaders } = await import('./readers-gateway.ts');
  const { sealedReaders } = await import('./readers-sealed.ts');
  const world = makeWorld();
  const formats = new Map(
    [
      ...streamFormats(world),
      ...textFormats(world),
      ...derFormats(world),
      ...xmlFormats(world),
      ...httpFormats,
      ...cpuFormats,
      ...sealedFormats,
    ].map((one) => [one.name, one]),
  );
  const [part = 0, parts = 1] = which.split('/').map(Number);
  const steep: string[] = [];
  const wrong: string[] = [];
  const idle: string[] = [];
  const files = new Set<string>();
  const signed = new Map<string, Promise<string>>();
  let counted = 0;
  const all = [...(await ofAll(world)), ...gatewayReaders, ...sealedReaders].filter(
    ({ name }, i) => i % parts === part && name.includes(wanted),
  );
  for (const { name, formats: read, begin, share = 1 } of all) {
    let reads = false;
    for (const format of read) {
      const { most, encoding, productions } = formats.get(format) ?? missing(format);
      for (const [production, make] of Object.entries(productions)) {
        if (!`${format}: ${production}`.includes(produced)) continue;
        const given = async (n: number) => {
          const key = `${format}: ${production}: ${Math.ceil(n)}`;
          const text = signed.get(key) ?? make(Math.ceil(n));
          // What is signed takes long to make.
          if (text instanceof Promise) signed.set(key, text);
          const bytes = Buffer.from(await text, encoding);
          return begin({ bytes, text: bytes.toString(encoding) });
        };
        const growth = await growthOf(given, (share * most) / 4);
        counted++;
        reads ||= growth.operations[2] > 1.5 * growth.operations[0];
        for (const file of growth.files) files.add(file);
        if (growth.times > MAX_GROWTH)
          steep.push(
            `${growth.times.toFixed(2)} times: ${name}, ${format}: ${production} (${growth.operations.map(Math.round).join(', ')})`,
          );
        const { name: thrown, message } = (growth.thrown ?? {}) as { name?: string; message?: string };
        if (thrown === 'TypeError' || thrown === 'ReferenceError')
          wrong.push(`${name}, ${format}: ${production}: ${message}`);
      }
    }
    if (!reads) idle.push(name);
  }
  say({
    steep,
    wrong,
    idle,
    files: [...files],
    counted,
    productions: [...formats.values()].reduce((sum, one) => sum + Object.keys(one.productions).length, 0),
  });
}

function missing(format: string): never {
  throw new TypeError(`there is no format ${format}`);
}

function say(found: object): void {
  process.stdout.write(JSON.stringify(found));
}

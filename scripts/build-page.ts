// `npm run make page`: writes the page's files into build/page, where the gateway finds them, and prints what they weigh.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { bundlePage, type PageFile } from '../gateway/routes/page.ts';

const FOLDER = fileURLToPath(new URL('../build/page', import.meta.url));

export async function writePage(): Promise<readonly PageFile[]> {
  const files = await bundlePage();
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, body } of files) writeFileSync(`${FOLDER}/${name}`, body);
  return files;
}

if (import.meta.main) {
  let total = 0;
  for (const { name, body } of await writePage()) {
    const gzipped = gzipSync(body, { level: 9 }).length;
    total += gzipped;
    console.log(`${String(body.length).padStart(8)}  ${String(gzipped).padStart(7)} gzipped  ${name}`);
  }
  console.log(`${String(total).padStart(17)} gzipped  in all`);
}

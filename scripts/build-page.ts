// `npm run make page`: writes the page's files into build/page, where the gateway finds them, and prints what they weigh.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { bundlePage } from '../gateway/routes/page.ts';

const folder = fileURLToPath(new URL('../build/page', import.meta.url));
const files = await bundlePage();
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
let total = 0;
for (const { name, body } of files) {
  writeFileSync(`${folder}/${name}`, body);
  const gzipped = gzipSync(body, { level: 9 }).length;
  total += gzipped;
  console.log(`${String(body.length).padStart(8)}  ${String(gzipped).padStart(7)} gzipped  ${name}`);
}
console.log(`${String(total).padStart(17)} gzipped  in all`);

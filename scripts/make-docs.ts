// `npm run make docs`: writes the pages of docs/ that are made from code, and the commands that install the verifier. A test fails while one of them is out of date.
import { writeFileSync } from 'node:fs';
import { PUBLISHED } from '../verify/common/version.ts';
import { configuration } from './docs/configuration.ts';
import { writeInstallCommands } from './docs/install-commands.ts';
import { metricsPage } from './docs/metrics.ts';

/** Page by page, under docs/. */
export async function madePages(): Promise<Record<string, string>> {
  return {
    'configuration.md': configuration(),
    'metrics.md': await metricsPage(),
  };
}

if (import.meta.main) {
  for (const [name, text] of Object.entries(await madePages())) {
    writeFileSync(new URL(`../docs/${name}`, import.meta.url), text);
    console.log(`docs/${name}`);
  }
  writeInstallCommands(PUBLISHED);
  process.exit(0);
}

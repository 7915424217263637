// `npm run make WHAT`: makes what is made from code.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const MAKERS: Readonly<Record<string, string>> = {
  /** docs/configuration.md, docs/metrics.md. */
  docs: 'make-docs.ts',
  /** vectors/, what is missing of it; `--force` for everything anew. */
  vectors: 'make-vectors.ts',
  /** vectors/release/, likewise. */
  'release-vectors': 'make-release-vectors.ts',
  /** build/page/. */
  page: 'build-page.ts',
  /** build/site/: the documentation as a site. */
  site: 'build-site.ts',
  /** The npm package @countersign/verify, in packages/verify/dist. */
  package: 'build-package.ts',
  /** THIRD-PARTY.md. */
  licences: 'licences.ts',
  /** .cache/genuine: the genuine evidence that tests read, checked by its hashes. */
  genuine: 'genuine.ts',
  /** What a release of deploy/cvm publishes to be expected. */
  reference: 'reference.ts',
  /** Certificates in Sigstore's log that name our release workflows, and that no release made. */
  'watch-log': 'watch-log.ts',
  /** The version, wherever it stands; `--check [VERSION]` compares. */
  versions: 'versions.ts',
};

const [what = '', ...rest] = process.argv.slice(2);
const maker = MAKERS[what];
if (maker === undefined) {
  console.error(`usage: npm run make ${Object.keys(MAKERS).join('|')}`);
  process.exit(2);
}
const { status } = spawnSync(process.execPath, [fileURLToPath(new URL(maker, import.meta.url)), ...rest], {
  stdio: 'inherit',
});
process.exit(status ?? 1);

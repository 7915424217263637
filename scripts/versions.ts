// One version for everything. `npm run make versions` copies package.json's to every other place and gives CHANGELOG.md's Unreleased section its
// name; `npm run make versions -- --check [VERSION]` says where another stands; `-- --notes` prints the section of this version.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeInstallCommands } from './docs/install-commands.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const VERSION = /^\d{1,5}\.\d{1,5}\.\d{1,5}(?:-[0-9A-Za-z.]{1,32})?$/;

interface Place {
  readonly file: string;
  /** The version is its only group; it stands in the file exactly `times` times, once by default. */
  readonly pattern: RegExp;
  readonly times?: number;
}

/** Everywhere that the version stands beside package.json. */
const PLACES: readonly Place[] = [
  // Its own two, before those of other packages.
  { file: 'package-lock.json', pattern: /"name": "countersign",\n\s+"version": "([^"]+)"/g, times: 2 },
  { file: 'packages/verify/package.json', pattern: /^ {2}"version": "([^"]+)"/gm },
  { file: 'python/src/countersign_verify/common/version.py', pattern: /^__version__ = "([^"]+)"/gm },
  { file: 'verify/common/version.ts', pattern: /^export const VERSION = '([^']+)';/gm },
  { file: 'gateway/routes/openapi.yaml', pattern: /^ {2}version: (\S+)/gm },
  { file: 'Dockerfile', pattern: /^ARG VERSION=(\S+)/gm },
  { file: 'deploy/helm/countersign/Chart.yaml', pattern: /^(?:version|appVersion): (\S+)/gm, times: 2 },
];
const UNRELEASED = '## Unreleased\n';

const [command, wanted, ...more] = process.argv.slice(2);
const version = (JSON.parse(read('package.json')) as { version: string }).version;
if (!VERSION.test(version)) fail(`package.json has ${JSON.stringify(version)}, which is no version`);
if (command === undefined) setAll();
else if (command === '--check' && more.length === 0) checkAll(wanted);
else if (command === '--notes' && wanted === undefined) process.stdout.write(sectionOf(version) ?? noSection());
else {
  console.error('usage: npm run make versions -- [--check [VERSION] | --notes]');
  process.exitCode = 2;
}

function setAll(): void {
  for (const { file, pattern, times = 1 } of PLACES) {
    const text = read(file);
    const found = [...text.matchAll(pattern)].length;
    if (found !== times) fail(`${file} has a version in ${found} places; it should be ${times}`);
    write(
      file,
      text.replace(pattern, (whole, old: string) => whole.replace(old, version)),
    );
  }
  nameUnreleased();
  const file = 'verify/common/version.ts';
  write(file, read(file).replace('PUBLISHED: boolean = false', 'PUBLISHED: boolean = true'));
  writeInstallCommands(true);
}

/** Says of every place whether it has package.json's version, and whether that is `tag`. */
function checkAll(tag: string | undefined): void {
  const wrong = PLACES.flatMap(({ file, pattern, times = 1 }) => {
    if (!existsSync(join(ROOT, file))) return [`${file} is not there`];
    const found = [...read(file).matchAll(pattern)].map(([, one]) => one);
    if (found.length !== times) return [`${file} has a version in ${found.length} places; it should be ${times}`];
    return found.filter((one) => one !== version).map((one) => `${file} has ${one}`);
  });
  if (tag !== undefined && tag !== version) wrong.push(`${JSON.stringify(tag)} was asked for`);
  if (sectionOf(version) === null) wrong.push('CHANGELOG.md has no section for it');
  if (wrong.length > 0) fail(`package.json has ${version}, and:\n${wrong.map((one) => `- ${one}`).join('\n')}`);
  console.log(`${version} everywhere`);
}

/** The section of what was not released becomes that of this version, unless it has one. A release that says nothing is refused. */
function nameUnreleased(): void {
  const text = read('CHANGELOG.md');
  if (sectionOf(version) !== null) return;
  const at = text.indexOf(UNRELEASED);
  const body = at < 0 ? '' : text.slice(at + UNRELEASED.length).split(/^## /m, 1)[0];
  if (body?.trim() === '') fail('CHANGELOG.md has nothing under "## Unreleased": write down what users notice first');
  const today = new Date().toISOString().slice(0, 10);
  write('CHANGELOG.md', text.replace(UNRELEASED, `${UNRELEASED}\n## ${version} - ${today}\n`));
}

/** What CHANGELOG.md says of a version, without the heading. */
function sectionOf(one: string): string | null {
  const [, ...sections] = read('CHANGELOG.md').split(/^## /m);
  const section = sections.find((text) => text.startsWith(`${one} - `));
  return section === undefined ? null : `${section.slice(section.indexOf('\n')).trim()}\n`;
}

function read(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

function write(file: string, text: string): void {
  if (text === read(file)) return;
  writeFileSync(join(ROOT, file), text);
  console.log(`${file}: ${version}`);
}

function noSection(): never {
  return fail(`CHANGELOG.md has no section for ${version}`);
}

function fail(reason: string): never {
  console.error(`versions: ${reason}`);
  process.exit(1);
}

// `npm run make licences`: writes THIRD-PARTY.md, the packages that the images carry and their licences.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string) => readFileSync(`${ROOT}${path}`, 'utf8');
export const FILE = 'THIRD-PARTY.md';

export interface Package {
  readonly name: string;
  readonly version: string;
  /** SPDX expression; null where nobody wrote it down. */
  readonly licence: string | null;
}

interface Locked {
  readonly version?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
}

/** From the lockfile: what `npm ci --omit=dev` installs. A package's builds for single platforms count as the package. */
export function npmPackages(lockfile = read('package-lock.json')): Package[] {
  const { packages } = JSON.parse(lockfile) as { packages: Record<string, Locked> };
  return Object.entries(packages)
    .filter(([path, { dev, devOptional }]) => path !== '' && dev !== true && devOptional !== true)
    .map(([path, { version = '', license }]) => ({
      name: path.replace(/^.*node_modules\//, ''),
      version,
      licence: license ?? null,
    }))
    .filter(({ name }) => !/^@koromix\/koffi-/.test(name))
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** From the hashed requirements of NVIDIA's SDK; their licences are kept beside them, read from each package's metadata. */
export function pythonPackages(
  requirements = read('sidecar/attesters/nvtrust/python/requirements.txt'),
  licences = JSON.parse(read('sidecar/attesters/nvtrust/python/licences.json')) as Record<string, string>,
): Package[] {
  return [...requirements.matchAll(/^([\w.-]+)==([\w.]+)/gm)]
    .map(([, name = '', version = '']) => ({ name, version, licence: licences[name] ?? null }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** Development dependencies whose code is in the page that the gateway serves; each notice is in the bundle. */
const PAGE = ['hpke', 'marked'];

export function pagePackages(lockfile = read('package-lock.json')): Package[] {
  const { packages } = JSON.parse(lockfile) as { packages: Record<string, Locked> };
  return PAGE.map((name) => {
    const { version = '', license } = packages[`node_modules/${name}`] ?? {};
    return { name, version, licence: license ?? null };
  });
}

/** What the Dockerfile installs from Debian where the sidecar's files are put together. */
export function debianPackages(dockerfile = read('Dockerfile')): string[] {
  const stage = dockerfile.slice(dockerfile.indexOf(' AS sidecar-sources'));
  const [, words = ''] = /apt-get install -y --no-install-recommends ([a-z0-9. -]+)/.exec(stage) ?? [];
  return words.trim().split(' ');
}

export function document(): string {
  const table = (packages: readonly Package[]) =>
    [
      '| package | version | licence |',
      '|---|---|---|',
      ...packages.map((one) => `| ${one.name} | ${one.version} | ${one.licence ?? 'unknown'} |`),
    ].join('\n');
  return `# Licences

Countersign is under Apache-2.0. Its images carry these packages too, beside what their base (Debian, Node) holds, whose
licences lie in \`/usr/share/doc\` and \`/usr/local/LICENSE\` there. \`npm run make licences\` writes this page. A release's
SBOM lists every package of each image, Debian's included.

## Gateway and sidecar (npm)

${table(npmPackages())}

## The page, in its bundle (npm)

${table(pagePackages())}

## Sidecar, for NVIDIA's SDK (PyPI)

${table(pythonPackages())}

## Sidecar, from Debian

${debianPackages()
  .map((name) => `\`${name}\``)
  .join(', ')} and what they need: see \`/usr/share/doc/PACKAGE/copyright\`. With a package in \`deploy/nvattest\`,
NVIDIA's \`nvattest\` too, which each operator fetches under its own licence.
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(`${ROOT}${FILE}`, document());

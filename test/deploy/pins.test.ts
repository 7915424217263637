import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string) => readFileSync(`${ROOT}${path}`, 'utf8');
/** Everything that is kept, new files included. */
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: ROOT,
  encoding: 'utf8',
})
  .trim()
  .split('\n');
const DOCKERFILES = files.filter((path) => /(^|\/)(.*\.)?Dockerfile(\..*)?$/.test(path));
/** A chart's templates take every image from its values. */
const YAML = files.filter((path) => /\.ya?ml$/.test(path) && !/^deploy\/helm\/.*\/templates\//.test(path));

const PINNED = /^[a-z0-9][a-z0-9./_-]*(:[\w.-]+)?@sha256:[0-9a-f]{64}$/;
/** What is built from the Dockerfile here. */
const OURS = /^countersign-(gateway|sidecar|demo-sidecar|demo-engine)(:[\w.-]+)?$/;

/** The images that a Dockerfile begins a stage with: arguments filled in with their defaults, its own stages left out. */
function basesOf(text: string): string[] {
  const defaults = new Map([...text.matchAll(/^ARG (\w+)=(\S+)$/gm)].map(([, name, value]) => [name, value]));
  const stages = new Set([...text.matchAll(/^FROM .* AS (\S+)$/gim)].map(([, name]) => name));
  return [...text.matchAll(/^FROM (?:--\S+ )*(\S+)/gim)]
    .map(([, image = '']) =>
      image.replace(/^\$\{?(\w+)\}?$/, (_, name) => defaults.get(name) ?? `without a default: ${name}`),
    )
    .filter((image) => !stages.has(image));
}

/** Images that a Dockerfile takes files from, its own stages left out. */
function copiedFrom(text: string): string[] {
  const stages = new Set([...text.matchAll(/^FROM .* AS (\S+)$/gim)].map(([, name]) => name));
  return [...text.matchAll(/--(?:mount=\S*\bfrom|from)=([^\s,]+)/g)]
    .map(([, image = '']) => image)
    .filter((image) => !stages.has(image));
}

/** The values of `image:`, with the default of a variable in its place, and of an anchored one. */
function imagesOf(text: string): string[] {
  return [...text.matchAll(/^\s*(?:- )?(?:image|x-[\w-]*image):\s*(?:&\S+\s+)?['"]?([^\s'"]+)/gm)]
    .map(([, image = '']) => image)
    .filter((image) => !image.startsWith('*'))
    .map((image) => image.replace(/^\$\{\w+:-(.*)\}$/, '$1'));
}

describe('what the images are made of', () => {
  it('is a digest in every FROM of every Dockerfile', () => {
    expect(DOCKERFILES).toContain('Dockerfile');
    for (const path of DOCKERFILES) {
      const bases = basesOf(read(path));
      expect(bases.length).toBeGreaterThan(0);
      for (const image of [...bases, ...copiedFrom(read(path))])
        expect([path, image]).toEqual([path, expect.stringMatching(PINNED)]);
    }
  });

  it('is a digest for every image that is not built here', () => {
    const found = YAML.flatMap((path) => imagesOf(read(path)).map((image) => [path, image] as const));
    expect(found.length).toBeGreaterThanOrEqual(4);
    for (const [path, image] of found)
      expect([path, image, PINNED.test(image) || OURS.test(image)]).toEqual([path, image, true]);
  });

  it('is looked up by the same digest in .env.example', () => {
    const named = /^VLLM_IMAGE=(\S+)$/m.exec(read('.env.example'))?.[1];
    expect(named).toMatch(PINNED);
    expect(read('compose.yaml')).toContain(`\${VLLM_IMAGE:-${named}}`);
  });

  it('is a commit for every step of a workflow, and a digest for every image in one', () => {
    const workflows = YAML.filter((path) => path.startsWith('.github/workflows/'));
    expect(workflows.length).toBeGreaterThan(0);
    for (const path of workflows) {
      const text = read(path);
      for (const [, step] of text.matchAll(/\buses:\s*(\S+)/g))
        expect([path, step]).toEqual([path, expect.stringMatching(/^(\.\/.*|[\w./-]+@[0-9a-f]{40})$/)]);
      for (const [, image] of text.matchAll(/^ {2}[A-Z_]+: (\S+\/\S+)$/gm)) expect(image).toMatch(PINNED);
    }
  });

  it('has SBOM and provenance in the release', () => {
    const release = read('.github/workflows/release.yml');
    expect(release).toContain('--attest "type=sbom,generator=$SBOM_SCANNER"');
    expect(release).toContain('--attest type=provenance,mode=max');
  });

  it('is labelled with the version of package.json', () => {
    const { version } = JSON.parse(read('package.json')) as { version: string };
    expect(read('Dockerfile')).toContain(`ARG VERSION=${version}\n`);
  });
});

interface Manager {
  readonly managerFilePatterns: readonly string[];
  readonly matchStrings: readonly string[];
  readonly depNameTemplate?: string;
}

describe('renovate.json', () => {
  const config = JSON.parse(read('renovate.json')) as { enabledManagers: string[]; customManagers: Manager[] };
  const matching = (patterns: readonly string[]) =>
    files.filter((path) => patterns.some((pattern) => new RegExp(pattern.slice(1, -1)).test(path)));
  const found = config.customManagers.map(({ managerFilePatterns, matchStrings, depNameTemplate }) =>
    matching(managerFilePatterns).flatMap((path) =>
      matchStrings.flatMap((pattern) =>
        [...read(path).matchAll(new RegExp(pattern, 'g'))].map(({ groups }) => groups?.depName ?? depNameTemplate),
      ),
    ),
  );

  it('watches what npm, PyPI, Cargo and the workflows name', () => {
    expect(config.enabledManagers).toEqual(
      expect.arrayContaining(['npm', 'github-actions', 'pip_requirements', 'pep621', 'cargo']),
    );
    expect(files).toEqual(expect.arrayContaining(['python/pyproject.toml', 'test/interop/ohttp/Cargo.toml']));
  });

  it('finds the pins that stand elsewhere, with each of its patterns', () => {
    expect(found.filter((names) => names.length === 0)).toEqual([]);
    for (const name of [
      'github.com/prometheus/prometheus',
      'github.com/rhysd/actionlint',
      'github.com/docker/compose/v2',
      'github.com/yannh/kubeconform',
      'github.com/sigstore/cosign/v3',
      'helm.sh/helm/v4',
      'kubernetes/kubernetes',
      'sigs.k8s.io/gateway-api-inference-extension',
      'pypi-attestations',
      'uv',
      'npm',
    ])
      expect(found.flat()).toContain(name);
  });
});

describe('the Node of the images', () => {
  it('is the one that the tests run on', () => {
    const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: Record<string, string> };
    const images = DOCKERFILES.flatMap((path) => basesOf(read(path))).filter((image) => image.startsWith('node:'));
    expect(images.length).toBeGreaterThan(0);
    for (const image of images) expect(/^node:([\d.]+)-/.exec(image)?.[1]).toBe(devDependencies.node);
  });
});

describe('the reader of pins', () => {
  const digest = `sha256:${'a'.repeat(64)}`;

  it('sees a base that is not pinned, however it is written', () => {
    expect(basesOf(`ARG A=node:24\nFROM \${A} AS x\nFROM x AS y\nFROM --platform=linux/amd64 debian\nFROM $B`)).toEqual(
      ['node:24', 'debian', 'without a default: B'],
    );
    expect(
      copiedFrom('FROM a AS x\nCOPY --from=x / /\nCOPY --from=alpine / /\nRUN --mount=type=bind,from=busybox x'),
    ).toEqual(['alpine', 'busybox']);
    expect('node:24').not.toMatch(PINNED);
    expect(`node:24@${digest}`).toMatch(PINNED);
  });

  it('sees an image that is not pinned, however it is written', () => {
    const text = `x-v-image: &v \${V:-vllm:1}\na:\n  image: *v\n  image: "redis"\n    - image: x@${digest}\n`;
    expect(imagesOf(text)).toEqual(['vllm:1', 'redis', `x@${digest}`]);
  });
});

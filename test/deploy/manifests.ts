// What kustomize makes of an overlay, and helm of the chart, as objects.
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

const FOLDER = fileURLToPath(new URL('../../deploy/kubernetes/', import.meta.url));
export const OVERLAYS = readdirSync(`${FOLDER}overlays`);
export const CHART = fileURLToPath(new URL('../../deploy/helm/countersign/', import.meta.url));

// biome-ignore lint/suspicious/noExplicitAny: manifests of every kind; kubeconform has checked their shapes
export type Manifest = any;

export interface Built {
  readonly text: string;
  all(kind: string): Manifest[];
  /** @throws when there is none. */
  one(kind: string, name: string): Manifest;
  /** Settings of a ConfigMap, its generated suffix left out. */
  settings(name: string): Record<string, string>;
}

/** @param path under deploy/kubernetes. */
export function build(kustomize: string, path: string): Built {
  return objectsOf(execFileSync(kustomize, ['build', FOLDER + path], { encoding: 'utf8' }), path);
}

/**
 * The chart with a file of `ci/`, or with its defaults, and with single values.
 * @throws with what helm says when it refuses them.
 */
export function render(helm: string, values: string | null, set: Record<string, unknown> = {}): Built {
  const file = values === null ? [] : ['--values', `${CHART}ci/${values}.yaml`];
  const single = Object.entries(set).flatMap(([name, value]) => ['--set-json', `${name}=${JSON.stringify(value)}`]);
  const args = ['template', 'countersign', CHART, '--namespace', 'countersign', ...file, ...single];
  const { status, stdout, stderr } = spawnSync(helm, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return objectsOf(stdout, `the chart with ${values ?? 'its defaults'}`);
}

function objectsOf(text: string, path: string): Built {
  const objects: Manifest[] = parseAllDocuments(text)
    .map((one) => one.toJS())
    .filter((one) => one !== null);
  const all = (kind: string) => objects.filter((one) => one.kind === kind);
  const one = (kind: string, name: string) => {
    const found = all(kind).find(({ metadata }) => metadata.name === name);
    if (found === undefined) throw new Error(`${path} has no ${kind} ${name}`);
    return found;
  };
  const settings = (name: string) =>
    all('ConfigMap').find(({ metadata }) => metadata.name === name || metadata.name.startsWith(`${name}-`))?.data ?? {};
  return { text, all, one, settings };
}

/** Every container of a workload, sidecars first. */
export const containersOf = ({ spec }: Manifest): Manifest[] => [
  ...(spec.template.spec.initContainers ?? []),
  ...spec.template.spec.containers,
];

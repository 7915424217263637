// What kustomize makes of an overlay, as objects.
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

const FOLDER = fileURLToPath(new URL('../../deploy/kubernetes/', import.meta.url));
export const OVERLAYS = readdirSync(`${FOLDER}overlays`);

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
  const text = execFileSync(kustomize, ['build', FOLDER + path], { encoding: 'utf8' });
  const objects: Manifest[] = parseAllDocuments(text).map((one) => one.toJS());
  const all = (kind: string) => objects.filter((one) => one.kind === kind);
  const one = (kind: string, name: string) => {
    const found = all(kind).find(({ metadata }) => metadata.name === name);
    if (found === undefined) throw new Error(`${path} has no ${kind} ${name}`);
    return found;
  };
  const settings = (name: string) =>
    all('ConfigMap').find(({ metadata }) => metadata.name.startsWith(`${name}-`))?.data ?? {};
  return { text, all, one, settings };
}

/** Every container of a workload, sidecars first. */
export const containersOf = ({ spec }: Manifest): Manifest[] => [
  ...(spec.template.spec.initContainers ?? []),
  ...spec.template.spec.containers,
];

// What helm makes of the chart, as objects.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

export const CHART = fileURLToPath(new URL('../../deploy/helm/countersign/', import.meta.url));
/** The chart's files of values, each for one kind of cluster. */
export const VALUES = readdirSync(`${CHART}values`).map((file) => file.replace(/\.yaml$/, ''));

/** What an operator adds to a file of values: the picker has no default, and a route belongs to a Gateway of theirs. */
const ADDED: Readonly<Record<string, Record<string, unknown>>> = {
  pool: {
    'pool.picker.image': `registry.k8s.io/gateway-api-inference-extension/epp@sha256:${'0'.repeat(64)}`,
    'pool.gateway.name': 'inference',
    'pool.gateway.namespace': 'gateways',
  },
};

// biome-ignore lint/suspicious/noExplicitAny: manifests of every kind; kubeconform has checked their shapes
export type Manifest = any;

export interface Built {
  readonly text: string;
  all(kind: string): Manifest[];
  /** @throws when there is none. */
  one(kind: string, name: string): Manifest;
  /** Settings of a ConfigMap; none where there is no such ConfigMap. */
  settings(name: string): Record<string, string>;
}

/**
 * The chart with a file of `values/`, or with its defaults, and with single values.
 * @throws with what helm says when it refuses them.
 */
export function render(helm: string, values: string | null, set: Record<string, unknown> = {}): Built {
  const file = values === null ? [] : ['--values', `${CHART}values/${values}.yaml`];
  const single = Object.entries({ ...ADDED[values ?? ''], ...set }).flatMap(([name, value]) => [
    '--set-json',
    `${name}=${JSON.stringify(value)}`,
  ]);
  const args = ['template', 'countersign', CHART, '--namespace', 'countersign', ...file, ...single];
  const { status, stdout, stderr } = spawnSync(helm, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  const objects: Manifest[] = parseAllDocuments(stdout)
    .map((one) => one.toJS())
    .filter((one) => one !== null);
  const all = (kind: string) => objects.filter((one) => one.kind === kind);
  const named = (kind: string, name: string) => all(kind).find(({ metadata }) => metadata.name === name);
  const one = (kind: string, name: string) => {
    const found = named(kind, name);
    if (found === undefined) throw new Error(`the chart with ${values ?? 'its defaults'} has no ${kind} ${name}`);
    return found;
  };
  return { text: stdout, all, one, settings: (name) => named('ConfigMap', name)?.data ?? {} };
}

/** The pod security standard that the file of values asks of its namespace. @throws where it names none */
export function standardOf(values: string): string {
  const text = readFileSync(`${CHART}values/${values}.yaml`, 'utf8');
  const [, standard] = /^# Pod security of the namespace: (restricted|baseline|privileged)\b/m.exec(text) ?? [];
  if (standard === undefined) throw new Error(`values/${values}.yaml names no pod security standard`);
  return standard;
}

/** Every container of a workload, sidecars first. */
export const containersOf = ({ spec }: Manifest): Manifest[] => [
  ...(spec.template.spec.initContainers ?? []),
  ...spec.template.spec.containers,
];

/** The pod that a Deployment makes. */
export const podOf = (built: Built, name = 'countersign'): Manifest => built.one('Deployment', name).spec.template.spec;

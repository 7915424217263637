// A fleet: an API server with what the chart renders, three pods, a store between them, the picker and Envoy in front.
import { parseAllDocuments } from 'yaml';
import { type Built, containersOf, render } from '../deploy/manifests.ts';
import { definitionOf, tool } from '../deploy/tools.ts';
import { type StoreServer, startStoreServer } from '../store/server.ts';
import { type Cluster, type KubernetesObject, NAMESPACE, startCluster } from './cluster.ts';
import { type Front, startFront } from './front.ts';
import { type Pod, type PodOptions, startPod } from './pod.ts';
import type { Tools } from './tools.ts';

export interface Fleet {
  readonly cluster: Cluster;
  readonly store: StoreServer;
  readonly chart: Built;
  /** In front of the pods with the chart's own configuration. */
  readonly front: Front;
  readonly pods: Map<string, Pod>;
  /** A pod more, known to the API server and ready. */
  add(options: Omit<PodOptions, 'storeUrl'>): Promise<Pod>;
  /** The pod and its object. */
  remove(name: string): Promise<void>;
  /** Another picker and Envoy, with another configuration. */
  frontWith(config: string): Promise<Front>;
  close(): Promise<void>;
}

/** What was started is ended, in the other order. */
type Closing = (() => Promise<unknown>)[];
const closeAll = async (closing: Closing) => {
  for (const close of closing.reverse()) await close().catch(console.error);
};

/** @throws what went wrong; nothing is left running then. */
export async function startFleet(tools: Tools): Promise<Fleet> {
  const closing: Closing = [];
  try {
    return await start(tools, closing);
  } catch (error) {
    await closeAll(closing);
    throw error;
  }
}

async function start(tools: Tools, closing: Closing): Promise<Fleet> {
  const cluster = await startCluster(tools);
  closing.push(() => cluster.close());
  const store = await startStoreServer(tools.valkey);
  closing.push(() => store.close());
  const chart = render(await tool('helm'), 'pool', { 'pool.picker.kind': tools.pickerKind });
  await install(cluster, chart);
  const pods = new Map<string, Pod>();
  closing.push(() => Promise.all([...pods.values()].map((pod) => pod.close())));

  const add = async (options: Omit<PodOptions, 'storeUrl'>) => {
    const pod = await startPod({ ...options, storeUrl: store.url });
    pods.set(pod.name, pod);
    await cluster.create(podObject(chart, pod.name));
    await cluster.report(pod.name, pod.ip, true);
    return pod;
  };
  const [picker] = containersOf(chart.one('Deployment', 'countersign-picker'));
  const frontWith = async (config: string) => {
    const kubeconfig = await cluster.kubeconfigOf('countersign-picker');
    const front = await startFront({ programs: tools, kubeconfig, args: picker?.args, config });
    closing.push(() => front.close());
    return front;
  };
  const front = await frontWith(chart.settings('countersign-picker')['config.yaml'] ?? '');
  return {
    cluster,
    store,
    chart,
    front,
    pods,
    add,
    async remove(name) {
      await cluster.remove(name);
      await pods.get(name)?.close();
      pods.delete(name);
    },
    frontWith,
    close: () => closeAll(closing),
  };
}

/** Everything that the chart renders, and before it the definitions of kinds that are none of Kubernetes' own. */
export async function install(cluster: Cluster, chart: Built): Promise<void> {
  for (const kind of ['inferencepool', 'httproute', 'podmonitor', 'prometheusrule'] as const)
    for (const document of parseAllDocuments(await definitionOf(kind))) await cluster.create(document.toJS());
  const labels = { 'pod-security.kubernetes.io/enforce': 'privileged' };
  await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE, labels } });
  await cluster.create({
    apiVersion: 'node.k8s.io/v1',
    kind: 'RuntimeClass',
    metadata: { name: 'nvidia' },
    handler: 'nvidia',
  });
  for (const object of objectsOf(chart)) await retried(() => cluster.create(object));
}

export const objectsOf = (chart: Built): KubernetesObject[] =>
  parseAllDocuments(chart.text)
    .map((document) => document.toJS())
    .filter((object) => object !== null);

/** A kind that has just been defined is served a moment later. */
async function retried(create: () => Promise<unknown>): Promise<void> {
  for (let tries = 0; ; tries++)
    try {
      return void (await create());
    } catch (error) {
      if (tries === 50 || !/page not found|could not find/.test((error as Error).message)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
}

/** As the ReplicaSet's controller would make it of the Deployment's template, on a node of its own or on none yet. */
export function podObject(
  chart: Built,
  name: string,
  { deployment = 'countersign', placed = true }: { deployment?: string; placed?: boolean } = {},
): KubernetesObject {
  const { metadata, spec } = chart.one('Deployment', deployment).spec.template;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: metadata.labels },
    spec: { ...spec, ...(placed ? { nodeName: `node-of-${name}` } : {}) },
  };
}

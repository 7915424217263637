import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Built, render, standardOf, VALUES } from '../deploy/manifests.ts';
import { tool } from '../deploy/tools.ts';
import { eventually, freePort } from '../support/harness.ts';
import { type RunningProcess, startCommand } from '../support/process.ts';
import { type Cluster, type KubernetesObject, startCluster } from './cluster.ts';
import { install, objectsOf, podObject } from './fleet.ts';
import { schedulingTools } from './tools.ts';

const tools = await schedulingTools();
const TAINT = { key: 'nvidia.com/gpu', value: 'present', effect: 'NoSchedule' };
let cluster: Cluster;
let scheduler: RunningProcess;
let chart: Built;

beforeAll(async () => {
  if (tools === null) return;
  cluster = await startCluster(tools);
  chart = render(await tool('helm'), 'pool');
  await install(cluster, chart);
  await models();
  for (const name of ['gpu-1', 'gpu-2', 'gpu-3']) await node(name, { 'nvidia.com/gpu': '1' }, [TAINT]);
  await node('no-gpu', {}, []);
  scheduler = startCommand(tools.scheduler, [
    `--kubeconfig=${await cluster.kubeconfigOf(null)}`,
    '--leader-elect=false',
    '--authentication-skip-lookup',
    `--secure-port=${await freePort()}`,
    '--bind-address=127.0.0.1',
  ]);
}, 1_800_000);
afterAll(async () => {
  await scheduler?.kill('SIGKILL');
  await cluster?.close();
}, 60_000);

const nodeOf = async (pod: string): Promise<string | undefined> => (await cluster.get('Pod', pod)).spec.nodeName;

async function placed(pods: readonly string[]): Promise<string[]> {
  await eventually(async () => {
    if (scheduler.child.exitCode !== null) throw new Error(`the scheduler ended: ${scheduler.output().slice(-3000)}`);
    return (await Promise.all(pods.map(nodeOf))).every((name) => name !== undefined);
  }, 60_000);
  return (await Promise.all(pods.map(nodeOf))).map(String);
}

/** What the scheduler says of a pod that it finds no node for. */
async function unplaced(pod: string): Promise<string> {
  let message = '';
  await eventually(async () => {
    const { status } = await cluster.get('Pod', pod);
    const condition = (status.conditions ?? []).find(({ type }: { type: string }) => type === 'PodScheduled');
    message = condition?.reason === 'Unschedulable' ? condition.message : '';
    return message !== '';
  }, 60_000);
  return message;
}

describe.skipIf(tools === null)('the scheduler places the pods', () => {
  it('of the chart one a node, where the GPUs are, and has no place for one more', async () => {
    const pods = ['pod-1', 'pod-2', 'pod-3'];
    for (const name of pods) await cluster.create(podObject(chart, name, { placed: false }));
    expect((await placed(pods)).sort()).toEqual(['gpu-1', 'gpu-2', 'gpu-3']);
    await cluster.create(podObject(chart, 'pod-4', { placed: false }));
    const message = await unplaced('pod-4');
    expect(message).toContain('0/4 nodes are available');
    expect(message).toContain('Insufficient nvidia.com/gpu');
    for (const name of [...pods, 'pod-4']) await cluster.remove(name);
  });

  it('of values/many.yaml so that each gateway is beside a vLLM, although it asks for no GPU itself', async () => {
    const many = render(await tool('helm'), 'many');
    const backends = ['backend-1', 'backend-2'];
    for (const name of backends)
      await cluster.create(podObject(many, name, { deployment: 'countersign-backend', placed: false }));
    const taken = (await placed(backends)).sort();
    expect(new Set(taken).size).toBe(2);
    for (const name of ['gateway-1', 'gateway-2', 'gateway-3'])
      await cluster.create(podObject(many, name, { placed: false }));
    await eventually(
      async () => (await Promise.all(['gateway-1', 'gateway-2', 'gateway-3'].map(nodeOf))).filter(Boolean).length === 2,
    );
    const nodes = await Promise.all(['gateway-1', 'gateway-2', 'gateway-3'].map(nodeOf));
    expect(nodes.filter(Boolean).sort()).toEqual(taken);
    expect(await unplaced(`gateway-${nodes.indexOf(undefined) + 1}`)).toMatch(/pod (anti-)?affinity rules/);
  });
});

describe.skipIf(tools === null)('the API server', () => {
  const level = (enforce: string) =>
    cluster.change('Namespace', 'countersign', {
      metadata: { labels: { 'pod-security.kubernetes.io/enforce': enforce } },
    });
  /** Under another name, for the chart's own are there. */
  const judge = (object: KubernetesObject) =>
    cluster.create(
      { ...object, metadata: { ...object.metadata, name: `${object.metadata.name}-dry` } },
      { dryRun: true },
    );

  it.each(VALUES)(
    'takes what the chart makes of values/%s.yaml, and its pods under the standard that the file names',
    async (name) => {
      const rendered = render(await tool('helm'), name);
      for (const object of objectsOf(rendered)) await judge(object);
      await level(standardOf(name));
      for (const { metadata } of rendered.all('Deployment'))
        await judge(podObject(rendered, metadata.name, { deployment: metadata.name, placed: false }));
    },
  );

  it.each(VALUES.filter((name) => name !== 'demo'))(
    'would not take the pods of %s under a stricter standard',
    async (name) => {
      const rendered = render(await tool('helm'), name);
      expect(standardOf(name)).toBe('privileged');
      await level('baseline');
      await expect(judge(podObject(rendered, 'strict', { placed: false }))).rejects.toThrow(/violates PodSecurity/);
    },
  );

  it.each<[string, Record<string, unknown>]>([
    ['its defaults', {}],
    ['a claim for the GPUs', { 'gpu.access': 'claim', 'gpu.count': 8 }],
    ["GPUs by the toolkit's NRI plugin", { 'gpu.access': 'nri' }],
    ['an engine elsewhere', { 'backend.mode': 'url', 'backend.url': 'http://engine.models.svc:8000/v1' }],
  ])('takes what the chart makes of %s, and where the node sets the GPUs ready, without root', async (_what, set) => {
    const rendered = render(await tool('helm'), null, set);
    for (const object of objectsOf(rendered)) await judge(object);
    await level('privileged');
    await judge(podObject(rendered, 'one', { placed: false }));
    const byTheNode = render(await tool('helm'), null, { ...set, 'readyState.enabled': false });
    await level('restricted');
    await judge(podObject(byTheNode, 'one', { placed: false }));
  });
});

/** A node as its kubelet would register it, ready. */
async function node(name: string, gpus: Record<string, string>, taints: readonly object[]): Promise<void> {
  const amounts = { cpu: '64', memory: '512Gi', pods: '110', 'ephemeral-storage': '1Ti', ...gpus };
  await cluster.create({
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { 'kubernetes.io/hostname': name } },
    status: { capacity: amounts, allocatable: amounts, conditions: [{ type: 'Ready', status: 'True' }] },
  });
  // A new node is tainted until its controller has seen it ready.
  await cluster.change('Node', name, { spec: { taints } });
}

/** The claim with the weights, bound as its controller would bind it. */
async function models(): Promise<void> {
  const [capacity, accessModes] = [{ storage: '1Ti' }, ['ReadOnlyMany']];
  const claim = { name: 'countersign-models', namespace: 'countersign' };
  await cluster.create({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'models' },
    spec: { capacity, accessModes, claimRef: claim, nfs: { server: 'models.example', path: '/models' } },
  });
  await cluster.create({
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { ...claim, annotations: { 'pv.kubernetes.io/bind-completed': 'yes' } },
    spec: { accessModes, storageClassName: '', volumeName: 'models', resources: { requests: capacity } },
  });
}

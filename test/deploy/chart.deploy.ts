// What a fleet has beside its pods, and what single values do to the chart: what is refused, and in which words.
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig as loadGateway } from '../../gateway/base/config.ts';
import { type Built, CHART, containersOf, type Manifest, podOf, render } from './manifests.ts';
import { type Conforms, kubeconform, tool } from './tools.ts';

let helm: string;
let conforms: Conforms;
let pool: Built;

beforeAll(async () => {
  conforms = await kubeconform();
  helm = await tool('helm');
  pool = render(helm, 'pool');
}, 1_800_000);

describe('what a fleet has beside its pods', () => {
  it('is an InferencePool of the gateways, by their own port, with the picker that is there', () => {
    const { selector, targetPorts, endpointPickerRef } = pool.one('InferencePool', 'countersign').spec;
    const gateways = pool.one('Deployment', 'countersign').spec;
    expect(selector).toEqual(gateways.selector);
    expect(targetPorts).toEqual([{ number: 8080 }]);
    expect(endpointPickerRef).toMatchObject({ name: 'countersign-picker', failureMode: 'FailClose' });
    const { ports } = pool.one('Service', endpointPickerRef.name).spec;
    expect(ports).toMatchObject([{ port: endpointPickerRef.port.number, targetPort: 'grpc', appProtocol: 'http2' }]);
  });

  it('is a picker that reads in its own namespace, and changes nothing', () => {
    const { serviceAccountName } = podOf(pool, 'countersign-picker');
    const { roleRef, subjects } = pool.one('RoleBinding', 'countersign-picker');
    expect(subjects).toEqual([{ kind: 'ServiceAccount', name: serviceAccountName, namespace: 'countersign' }]);
    const { rules } = pool.one(roleRef.kind, roleRef.name);
    expect(rules.length).toBeGreaterThan(0);
    for (const { verbs } of rules) expect(verbs).toEqual(['get', 'list', 'watch']);
    expect([pool.all('ClusterRole'), pool.all('ClusterRoleBinding')]).toEqual([[], []]);
  });

  it('is a picker that asks the metrics port, knows the pool, and leaves bodies alone', () => {
    const [picker] = containersOf(pool.one('Deployment', 'countersign-picker'));
    const { ports } = podOf(pool).containers.find(({ name }: Manifest) => name === 'gateway');
    const metrics = ports.find(({ name }: Manifest) => name === 'metrics').containerPort;
    expect(picker?.args).toEqual(
      expect.arrayContaining([
        '--pool-name=countersign',
        '--pool-namespace=countersign',
        `--model-server-metrics-port=${metrics}`,
        '--refresh-metrics-interval=1s',
      ]),
    );
    const config = pool.settings('countersign-picker')['config.yaml'] ?? '';
    expect(config.trim()).toBe(readFileSync(`${CHART}files/picker-gaie.yaml`, 'utf8').trim());
    expect(parse(config).parser).toEqual({ pluginRef: 'passthrough-parser' });
    for (const kind of ['gaie', 'llm-d-router']) {
      const { plugins } = parse(readFileSync(`${CHART}files/picker-${kind}.yaml`, 'utf8'));
      const source = plugins.find(({ type }: Manifest) => type === 'metrics-data-source');
      expect([kind, source.parameters.path]).toEqual([kind, '/metrics/picker']);
    }
  });

  it('routes a Gateway to the pool, without a limit of its own on the time of an answer', () => {
    const { parentRefs, rules } = pool.one('HTTPRoute', 'countersign').spec;
    expect(parentRefs).toEqual([{ name: 'inference', namespace: 'gateways' }]);
    expect(rules[0].backendRefs[0]).toMatchObject({ kind: 'InferencePool', name: 'countersign' });
    expect(rules[0].timeouts).toEqual({ request: '0s', backendRequest: '0s' });
  });

  it('has an autoscaler that the number of pods is left to, and gives a pod up slowly', () => {
    expect(pool.one('Deployment', 'countersign').spec.replicas).toBeUndefined();
    expect(render(helm, null).one('Deployment', 'countersign').spec.replicas).toBe(1);
    const { scaleTargetRef, metrics, behavior } = pool.one('HorizontalPodAutoscaler', 'countersign').spec;
    expect(scaleTargetRef).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name: 'countersign' });
    expect(metrics).toMatchObject([{ pods: { metric: { name: 'countersign_signing_queue_depth' } } }]);
    expect(behavior.scaleDown).toMatchObject({ stabilizationWindowSeconds: 900, policies: [{ value: 1 }] });
  });

  it('has its metrics collected from the gateways', () => {
    const { selector, podMetricsEndpoints, jobLabel } = pool.one('PodMonitor', 'countersign').spec;
    // The alerts match this job.
    expect(pool.one('Deployment', 'countersign').spec.template.metadata.labels[jobLabel]).toBe('countersign');
    expect(selector).toEqual(pool.one('Deployment', 'countersign').spec.selector);
    expect(podMetricsEndpoints).toEqual([{ port: 'metrics', path: '/metrics', interval: '15s' }]);
  });
});

describe('a rollout', () => {
  const budgets = (built: Built) => built.all('PodDisruptionBudget').map(({ spec }) => spec.maxUnavailable);

  it('changes a part of many pods at a time, as many as may be drained together', () => {
    const many = render(helm, 'many', { replicas: 40 });
    for (const name of ['countersign', 'countersign-backend'])
      expect(many.one('Deployment', name).spec.strategy).toEqual({
        type: 'RollingUpdate',
        rollingUpdate: { maxSurge: 0, maxUnavailable: '25%' },
      });
    expect(budgets(many)).toEqual(['25%', '25%']);
    const two = render(helm, 'many', { maxUnavailable: 2 });
    expect([two.one('Deployment', 'countersign').spec.strategy.rollingUpdate.maxUnavailable, budgets(two)]).toEqual([
      2,
      [2, 2],
    ]);
    expect(conforms(many.text).status).toBe(0);
  });

  it.each(['0%', '101%', 'some', 0])('is refused with maxUnavailable %j', (maxUnavailable) => {
    expect(() => render(helm, 'many', { maxUnavailable })).toThrow(/maxUnavailable/);
    expect(budgets(render(helm, 'many', { maxUnavailable: '100%' }))).toEqual(['100%', '100%']);
  });
});

describe('values', () => {
  it('show the GPU to engine and sidecar by one claim, without a runtime class', () => {
    const built = render(helm, null, { 'gpu.access': 'claim', 'gpu.count': 2, 'readyState.enabled': false });
    const users = containersOf(built.one('Deployment', 'countersign')).filter(({ resources }) => resources.claims);
    expect(users.map(({ name }) => name)).toEqual(['sidecar', 'backend']);
    expect(podOf(built).runtimeClassName).toBeUndefined();
    const [claim] = podOf(built).resourceClaims;
    const { spec } = built.one('ResourceClaimTemplate', claim.resourceClaimTemplateName);
    expect(spec.spec.devices.requests[0].exactly.count).toBe(2);
    expect(conforms(built.text).status).toBe(0);
  });

  it('name no runtime class where the cluster has none', () => {
    expect(podOf(render(helm, null, { 'gpu.runtimeClassName': '' })).runtimeClassName).toBeUndefined();
  });

  it("show the GPUs to sidecar and ready step by the toolkit's NRI plugin, where that is how the cluster does it", () => {
    const built = render(helm, null, { 'gpu.access': 'nri' });
    const { metadata, spec } = built.one('Deployment', 'countersign').spec.template;
    expect(spec.runtimeClassName).toBeUndefined();
    for (const { name } of spec.initContainers)
      expect(metadata.annotations[`nvidia.cdi.k8s.io/container.${name}`]).toBe('management.nvidia.com/gpu=all');
    const users = containersOf(built.one('Deployment', 'countersign')).filter(
      ({ resources }) => resources.limits['nvidia.com/gpu'] !== undefined,
    );
    expect(users.map(({ name }) => name)).toEqual(['backend']);
    expect(JSON.stringify(spec)).not.toContain('NVIDIA_VISIBLE_DEVICES');
  });

  it('let the GPUs accept work without an attestation where that is said', () => {
    const ready = (set: Record<string, unknown>) =>
      podOf(render(helm, null, set)).initContainers.map(describeEnvironment);
    expect(ready({})[1]).toMatchObject({ name: 'ready', env: { READY_WITHOUT_ATTESTATION: '0' } });
    expect(ready({ 'readyState.withoutAttestation': true })[1].env.READY_WITHOUT_ATTESTATION).toBe('1');
  });

  it('let a gateway run anywhere where no GPU signs, beside an engine of its own pods', () => {
    const built = render(helm, 'demo');
    expect(podOf(built).affinity).toBeUndefined();
    expect(built.one('Service', 'countersign-backend').spec.internalTrafficPolicy).toBeUndefined();
    const { backend_url } = loadGateway(built.settings('countersign-gateway'));
    expect(backend_url).toBe('http://countersign-backend:8000/v1');
    const [engine] = containersOf(built.one('Deployment', 'countersign-backend'));
    expect(engine?.env.map(({ name }: Manifest) => name)).toEqual(['HOST', 'PORT']);
  });

  it('take an engine that is elsewhere', () => {
    const built = render(helm, null, { 'backend.mode': 'url', 'backend.url': 'http://engine.models.svc:8000/v1' });
    expect(containersOf(built.one('Deployment', 'countersign')).map(({ name }) => name)).toEqual([
      'sidecar',
      'ready',
      'gateway',
    ]);
    expect(loadGateway(built.settings('countersign-gateway')).backend_url).toContain('engine.models.svc');
  });

  it.each<[string, Record<string, unknown>, RegExp]>([
    ['a wrong type', { replicas: 'two' }, /replicas.*got string, want integer/],
    ['a name that no value has', { replica: 2 }, /additional properties 'replica' not allowed/],
    ['an unknown attester', { 'sidecar.attester': 'nvtrusty' }, /sidecar\/attester.*must be one of/],
    ['a port that is none', { 'backend.port': 70000 }, /backend\/port/],
    ['an address that is none', { 'backend.mode': 'url', 'backend.url': 'engine:8000' }, /backend\/url/],
    ['no address', { 'backend.mode': 'url' }, /backend\.url: backend\.mode=url needs the engine's address/],
    ['an address that nobody asks', { 'backend.url': 'http://x/v1' }, /backend\.mode=beside would not use it/],
    [
      'an engine of its own pods that only its pod reaches',
      { 'backend.mode': 'service' },
      /backend\.args: .*--host 0\.0\.0\.0/,
    ],
    [
      'one claim for two pods',
      { 'backend.mode': 'service', 'backend.args': [], 'gpu.access': 'claim' },
      /gpu\.access: a claim belongs to one pod/,
    ],
    ['a setting that the chart makes', { 'gateway.env.PORT': '1' }, /gateway\.env\.PORT: the chart sets it itself/],
    ['a simulated GPU by accident', { 'sidecar.attester': 'simulated' }, /proves nothing about hardware/],
    ['no GPU', { 'gpu.access': 'none' }, /gpu\.access: none leaves the sidecar without a GPU/],
    ['a pool without a picker', { 'pool.enabled': true }, /pool\.picker\.image: .* by its digest/],
    [
      'a pool of pods that do not find each other',
      { 'pool.enabled': true, 'pool.picker.image': 'x@sha256:0', replicas: 2 },
      /store\.enabled: several pods behind a pool/,
    ],
    ['a route to no pool', { 'pool.gateway.name': 'inference' }, /pool\.enabled is false/],
    [
      'a promise of ready state that nothing keeps',
      { 'readyState.enabled': false, 'readyState.withoutAttestation': true },
      /readyState\.enabled is/,
    ],
    ['a minimum above the maximum', { 'autoscaling.minReplicas': 9 }, /autoscaling\.minReplicas: it is more than/],
  ])('are refused in words: %s', (_what, set, message) => {
    expect(() => render(helm, null, set)).toThrow(message);
  });

  it('have their version from package.json', () => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(parse(readFileSync(`${CHART}Chart.yaml`, 'utf8'))).toMatchObject({ version, appVersion: version });
  });
});

const describeEnvironment = ({ name, env }: Manifest) => ({ name, env: Object.fromEntries((env ?? []).map(entry)) });
const entry = ({ name, value, valueFrom }: Manifest) => [name, value ?? valueFrom];

import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig as loadGateway } from '../../gateway/base/config.ts';
import { loadConfig as loadSidecar } from '../../sidecar/common/config.ts';
import { type Built, build, CHART, containersOf, type Manifest, render } from './manifests.ts';
import { inNamespace, type Peer, reaches } from './network.ts';
import { type Conforms, KUBERNETES, kubeconform, tool } from './tools.ts';

/** The chart's values, and the overlay that they are the same as. */
const PAIRS = [
  ['its defaults', null, 'node'],
  ['ci/demo.yaml', 'demo', 'demo'],
  ['ci/pool.yaml', 'pool', 'pool'],
] as const;

let helm: string;
let conforms: Conforms;
const charts = new Map<string | null, Built>();
const overlays = new Map<string, Built>();
const chart = (values: string | null) => charts.get(values) as Built;
const overlay = (name: string) => overlays.get(name) as Built;

beforeAll(async () => {
  const kustomize = await tool('kustomize');
  conforms = await kubeconform();
  helm = await tool('helm');
  for (const [, values, name] of PAIRS) {
    charts.set(values, render(helm, values));
    overlays.set(name, build(kustomize, `overlays/${name}`));
  }
}, 1_800_000);

const podOf = (built: Built, name = 'countersign') => built.one('Deployment', name).spec.template.spec;

describe.each(PAIRS)('the chart with %s', (_what, values, name) => {
  it(`is what Kubernetes ${KUBERNETES} and the definitions of its other kinds describe`, () => {
    const { status, output } = conforms(chart(values).text);
    console.log(`chart, ${values ?? 'defaults'}: ${output.trim()}`);
    expect([output, status]).toEqual([expect.stringContaining('Invalid: 0, Errors: 0, Skipped: 0'), 0]);
  });

  it('has settings that both processes accept, about the same socket', () => {
    const gateway = loadGateway(chart(values).settings('countersign-gateway'));
    const sidecar = loadSidecar(chart(values).settings('countersign-sidecar'), 1);
    expect(gateway.sidecar_socket).toBe(sidecar.sidecar_socket);
    expect([gateway.allow_simulated, sidecar.attester === 'simulated']).toEqual(
      values === 'demo' ? [true, true] : [false, false],
    );
  });

  it(`runs the containers of the overlay ${name}, with the same rights, probes, settings and volumes`, () => {
    const [ours, theirs] = [chart(values), overlay(name)];
    // In the overlay `demo` the engine is a Deployment of its own.
    const shared = ({ name: container }: Manifest) => values !== 'demo' || container !== 'backend';
    // Steps and sidecars have an order, containers none.
    const described = (built: Built) => {
      const { initContainers, containers } = podOf(built);
      return [...initContainers, ...[...containers].sort(byName)].filter(shared).map(describeContainer(built));
    };
    const both = [described(ours), described(theirs)].map((containers) =>
      values === 'demo' ? containers.map(withoutBackendUrl) : containers,
    );
    expect(both[0]?.length).toBeGreaterThanOrEqual(2);
    expect(both[0]).toEqual(both[1]);
    const used = new Set(both[1]?.flatMap(({ volumeMounts }) => volumeMounts.map((one: Manifest) => one.name)));
    const volumes = (built: Built) =>
      podOf(built)
        .volumes.filter((one: Manifest) => used.has(one.name))
        .map(withoutSuffix)
        .sort(byName);
    expect(volumes(ours)).toEqual(volumes(theirs));
  });

  it(`is the pod of the overlay ${name} in what is about all containers`, () => {
    const ofPod = (built: Built) => {
      const { securityContext, serviceAccountName, automountServiceAccountToken, enableServiceLinks } = podOf(built);
      const { terminationGracePeriodSeconds, runtimeClassName, tolerations } = podOf(built);
      return {
        securityContext,
        serviceAccountName,
        automountServiceAccountToken,
        enableServiceLinks,
        terminationGracePeriodSeconds,
        runtimeClassName,
        tolerations,
      };
    };
    expect(ofPod(chart(values))).toEqual(ofPod(overlay(name)));
  });

  it('opens in the network what is needed, and nothing else', () => {
    const policies = chart(values).all('NetworkPolicy');
    const labelled = (deployment: string, ports: Record<string, number>) =>
      inNamespace(chart(values).one('Deployment', deployment).spec.template.metadata.labels, ports);
    const gateway = labelled('countersign', { http: 8080, metrics: 9090 });
    const elsewhere: Peer = { labels: { app: 'client' }, namespace: { 'kubernetes.io/metadata.name': 'default' } };
    const monitoring: Peer = { labels: {}, namespace: { 'countersign/metrics': 'true' } };
    const internet: Peer = { address: '203.0.113.7' };
    const store: Peer = { labels: { 'app.kubernetes.io/name': 'valkey' }, namespace: { any: 'where' } };
    const rows: [from: Peer, to: Peer, port: number, allowed: boolean][] = [
      [elsewhere, gateway, 8080, true],
      [elsewhere, gateway, 9090, false],
      [monitoring, gateway, 9090, true],
      [elsewhere, gateway, 8000, false],
      [gateway, internet, 443, true],
      [gateway, { address: '169.254.169.254' }, 443, false],
      [gateway, { address: '10.0.0.1' }, 443, false],
      [gateway, store, 6379, values === 'pool'],
    ];
    if (values === 'pool') {
      const picker = labelled('countersign-picker', { grpc: 9002, metrics: 9090 });
      rows.push(
        [elsewhere, picker, 9002, true],
        [elsewhere, picker, 9090, false],
        [picker, gateway, 9090, true],
        [picker, { address: '10.0.0.1' }, 443, true],
        [picker, internet, 80, false],
      );
    }
    for (const [from, to, port, allowed] of rows)
      expect([from, to, port, reaches(policies, from, to, port)]).toEqual([from, to, port, allowed]);
  });
});

describe('what a fleet has beside its pods', () => {
  it.each([
    ['InferencePool', 'countersign'],
    ['HorizontalPodAutoscaler', 'countersign'],
    ['PodMonitor', 'countersign'],
    ['PodDisruptionBudget', 'countersign'],
    ['Role', 'countersign-picker'],
    ['RoleBinding', 'countersign-picker'],
    ['Service', 'countersign-picker'],
  ])('%s %s is the same in chart and overlay', (kind, name) => {
    const [ours, theirs] = [chart('pool'), overlay('pool')].map((built) => {
      const { metadata: _, apiVersion, kind: _kind, ...rest } = built.one(kind, name);
      return withoutInstance({ apiVersion, ...rest });
    });
    expect(ours).toEqual(theirs);
  });

  it('has a picker with the same image name to fill in, arguments, rights and configuration', () => {
    const describePicker = (built: Built) => {
      const [container] = containersOf(built.one('Deployment', 'countersign-picker')).map(describeContainer(built));
      const { image: _, ...rest } = container as Manifest;
      return rest;
    };
    expect(describePicker(chart('pool'))).toEqual(describePicker(overlay('pool')));
    const config = (built: Built) => built.settings('countersign-picker')['config.yaml'];
    expect(config(chart('pool'))?.trim()).toBe(config(overlay('pool'))?.trim());
    expect(parse(config(chart('pool')) ?? '').parser).toEqual({ pluginRef: 'passthrough-parser' });
  });

  it('routes a Gateway to the pool, without a limit of its own on the time of an answer', () => {
    const { parentRefs, rules } = chart('pool').one('HTTPRoute', 'countersign').spec;
    expect(parentRefs).toEqual([{ name: 'inference', namespace: 'gateways' }]);
    expect(rules[0].backendRefs[0]).toMatchObject({ kind: 'InferencePool', name: 'countersign' });
    expect(rules[0].timeouts).toEqual({ request: '0s', backendRequest: '0s' });
  });

  it('leaves the number of pods to the autoscaler', () => {
    for (const built of [chart('pool'), overlay('pool')])
      expect(built.one('Deployment', 'countersign').spec.replicas).toBeUndefined();
    expect(chart(null).one('Deployment', 'countersign').spec.replicas).toBe(1);
  });
});

describe('values', () => {
  it('show the GPU to engine and sidecar by one claim, without a runtime class', () => {
    const built = render(helm, null, { 'gpu.access': 'claim', 'gpu.count': 2 });
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
    const built = render(helm, null, { 'gpu.access': 'nri', 'readyState.enabled': true });
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
      podOf(render(helm, null, { 'readyState.enabled': true, ...set })).initContainers.map(describeEnvironment);
    expect(ready({})[1]).toMatchObject({ name: 'ready', env: { READY_WITHOUT_ATTESTATION: '0' } });
    expect(ready({ 'readyState.withoutAttestation': true })[1].env.READY_WITHOUT_ATTESTATION).toBe('1');
  });

  it('take an engine that is elsewhere', () => {
    const built = render(helm, null, { 'backend.mode': 'url', 'backend.url': 'http://engine.models.svc:8000/v1' });
    expect(containersOf(built.one('Deployment', 'countersign')).map(({ name }) => name)).toEqual([
      'sidecar',
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
      { 'readyState.withoutAttestation': true },
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

const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);

/** Names of generated ConfigMaps and Secrets end in a hash of their content. */
const withoutSuffix = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value).replace(/"(countersign-[a-z-]+)-[a-z0-9]{10}"/g, '"$1"'));

/** A chart's selectors also name the release. */
const withoutInstance = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value)
      .replace(/"app\.kubernetes\.io\/instance":"countersign",?/g, '')
      .replaceAll(',}', '}'),
  );

function withoutBackendUrl(container: Manifest): Manifest {
  const { BACKEND_URL: _, ...env } = container.env;
  return { ...container, env };
}

const describeEnvironment = ({ name, env }: Manifest) => ({ name, env: Object.fromEntries((env ?? []).map(entry)) });
const entry = ({ name, value, valueFrom }: Manifest) => [name, value ?? valueFrom];

/** A container with the environment that it will have, wherever it comes from. */
const describeContainer =
  (built: Built) =>
  ({ envFrom = [], env = [], volumeMounts = [], ...rest }: Manifest): Manifest => {
    const names = envFrom.map((one: Manifest) => /^countersign-[a-z]+/.exec(one.configMapRef.name)?.[0]);
    const settings = names.map((name: string) => built.settings(name));
    return {
      ...rest,
      env: Object.assign({}, ...settings, Object.fromEntries(env.map(entry))),
      volumeMounts: [...volumeMounts].sort(byName),
    };
  };

// The chart with its defaults and with each file of values: what runs, with which rights, and who reaches whom.
import { existsSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { loadConfig as loadGateway } from '../../gateway/base/config.ts';
import { loadConfig as loadSidecar } from '../../sidecar/common/config.ts';
import { type Built, containersOf, type Manifest, podOf, render, standardOf, VALUES } from './manifests.ts';
import { inNamespace, type Peer, reaches } from './network.ts';
import { type Conforms, KUBERNETES, kubeconform, tool } from './tools.ts';

const DRAIN_SECONDS = 25;
/** They run as root, before the gateway, and end. */
const STEPS = ['tsm', 'ready'];
/** Stands for no file of values. */
const DEFAULTS = 'its defaults';
const CASES = [DEFAULTS, ...VALUES];
let conforms: Conforms;
const built = new Map<string, Built>();
const of = (name: string) => built.get(name) as Built;

beforeAll(async () => {
  const helm = await tool('helm');
  conforms = await kubeconform();
  for (const name of CASES) built.set(name, render(helm, name === DEFAULTS ? null : name));
}, 1_800_000);

describe.each(CASES)('the chart with %s', (name) => {
  it(`is what Kubernetes ${KUBERNETES} describes, with nothing else in it`, () => {
    const { status, output } = conforms(of(name).text);
    console.log(`${name}: ${output.trim()}`);
    expect([output, status]).toEqual([expect.stringContaining('Invalid: 0, Errors: 0, Skipped: 0'), 0]);
  });

  it('locks every container: no root, no capability, no new privilege, nothing to write on, a limit on memory', () => {
    const workloads = of(name).all('Deployment');
    expect(workloads.length).toBeGreaterThan(0);
    // What `tsm` and `ready` may do instead is looked at below.
    for (const container of workloads.flatMap(containersOf).filter(({ name }) => !STEPS.includes(name))) {
      const { securityContext, resources } = container;
      expect([container.name, securityContext]).toEqual([
        container.name,
        expect.objectContaining({
          runAsNonRoot: true,
          runAsUser: expect.any(Number),
          readOnlyRootFilesystem: true,
          allowPrivilegeEscalation: false,
          capabilities: { drop: ['ALL'] },
          seccompProfile: { type: 'RuntimeDefault' },
        }),
      ]);
      expect(securityContext.runAsUser).toBeGreaterThan(0);
      expect([resources.limits.memory, resources.requests.memory, resources.requests.cpu]).not.toContain(undefined);
    }
    for (const { metadata, spec } of workloads) {
      const pod = spec.template.spec;
      // The picker alone talks to Kubernetes.
      const talks = metadata.name === 'countersign-picker';
      expect([pod.automountServiceAccountToken, pod.enableServiceLinks]).toEqual([talks, false]);
      expect([pod.hostNetwork, pod.hostPID, pod.hostIPC]).toEqual([undefined, undefined, undefined]);
      const ofTheHost = pod.volumes.filter((one: Manifest) => 'hostPath' in one).map((one: Manifest) => one.name);
      expect(ofTheHost).toEqual(name === 'node-cpu' ? ['tsm'] : []);
    }
  });

  it('runs no image of others that is not pinned by its digest', () => {
    const images: string[] = of(name)
      .all('Deployment')
      .flatMap(containersOf)
      .map(({ image }) => image);
    expect(images).toContain('countersign-gateway');
    for (const image of images) expect(image).toMatch(/^countersign-[a-z-]+$|@sha256:[0-9a-f]{64}$/);
  });

  it('starts the sidecar first and waits for it never', () => {
    const { initContainers: first, containers, volumes } = of(name).one('Deployment', 'countersign').spec.template.spec;
    const initContainers = first.filter(({ name }: Manifest) => !STEPS.includes(name));
    const [sidecar] = initContainers;
    expect([initContainers.length, sidecar.name, sidecar.restartPolicy]).toEqual([1, 'sidecar', 'Always']);
    expect([sidecar.startupProbe, sidecar.readinessProbe]).toEqual([undefined, undefined]);
    expect(sidecar.livenessProbe.exec.command).toEqual(['node', 'sidecar/healthcheck.ts']);
    const socket = volumes.find(({ name }: Manifest) => name === 'socket');
    expect(socket.emptyDir.medium).toBe('Memory');
    const mounts = [...initContainers, ...containers].map(({ name, volumeMounts }: Manifest) => [
      name,
      volumeMounts.find((one: Manifest) => one.name === 'socket')?.readOnly,
    ]);
    // Nobody but the gateway has it, and that one cannot replace the socket.
    expect(mounts.filter(([name]) => name !== 'backend')).toEqual([
      ['sidecar', undefined],
      ['gateway', true],
    ]);
    expect(volumes.filter((one: Manifest) => one.name === 'socket')).toHaveLength(1);
  });

  it('has settings that both processes accept, about the same socket', () => {
    const gateway = loadGateway(of(name).settings('countersign-gateway'));
    const sidecar = loadSidecar(of(name).settings('countersign-sidecar'), 1);
    expect(gateway.sidecar_socket).toBe(sidecar.sidecar_socket);
    expect(gateway.sidecar_socket).toMatch(/^\/run\/countersign\/./);
    expect(gateway.api_keys_file).toMatch(/^\/run\/secrets\/countersign\//);
    expect([gateway.allow_simulated, sidecar.attester === 'simulated']).toEqual(
      name === 'demo' ? [true, true] : [false, false],
    );
  });

  it('lets running answers end before it kills', () => {
    const pod = of(name).one('Deployment', 'countersign').spec.template.spec;
    const gateway = pod.containers.find(({ name }: Manifest) => name === 'gateway');
    const pause: number = gateway.lifecycle.preStop.sleep.seconds;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(pause + DRAIN_SECONDS + 5);
  });

  it('has selectors that select, and ports that are there', () => {
    const pods = of(name)
      .all('Deployment')
      .map(({ spec }) => spec.template);
    const selected = (labels: Record<string, string>) =>
      pods.filter(({ metadata }) => Object.entries(labels).every(([key, value]) => metadata.labels[key] === value));
    for (const { spec } of of(name).all('PodDisruptionBudget'))
      expect(selected(spec.selector.matchLabels)).toHaveLength(1);
    for (const { metadata, spec } of of(name).all('Service')) {
      const [pod] = selected(spec.selector);
      const ports = pod.spec.containers.flatMap((one: Manifest) => one.ports ?? []).map((one: Manifest) => one.name);
      for (const { targetPort } of spec.ports)
        expect([metadata.name, ports]).toEqual([metadata.name, expect.arrayContaining([targetPort])]);
    }
  });

  it('opens in the network what is needed, and nothing else', () => {
    const policies = of(name).all('NetworkPolicy');
    const pods = (deployment: string, ports: Record<string, number>) =>
      inNamespace(of(name).one('Deployment', deployment).spec.template.metadata.labels, ports);
    const has = (deployment: string) =>
      of(name)
        .all('Deployment')
        .some(({ metadata }) => metadata.name === deployment);
    const gateway = pods('countersign', { http: 8080, metrics: 9090 });
    const stranger = inNamespace({ app: 'stranger' });
    const elsewhere: Peer = { labels: { app: 'client' }, namespace: { 'kubernetes.io/metadata.name': 'default' } };
    const monitoring: Peer = { labels: {}, namespace: { 'countersign/metrics': 'true' } };
    const internet: Peer = { address: '203.0.113.7' };
    const clusterDns: Peer = {
      labels: { 'k8s-app': 'kube-dns' },
      namespace: { 'kubernetes.io/metadata.name': 'kube-system' },
    };
    // Only the defaults leave other pods of the namespace alone.
    const open = name === DEFAULTS;
    const rows: [from: Peer, to: Peer, port: number, allowed: boolean][] = [
      [elsewhere, gateway, 8080, true],
      [internet, gateway, 8080, true],
      [elsewhere, gateway, 9090, false],
      [monitoring, gateway, 9090, true],
      [elsewhere, gateway, 8000, false],
      [gateway, internet, 443, true],
      [gateway, internet, 80, false],
      [gateway, { address: '169.254.169.254' }, 443, false],
      [gateway, { address: '10.0.0.1' }, 443, false],
      [stranger, internet, 443, open],
      // DNS: the cluster's, and a cache on the node (NodeLocal DNSCache, GKE's Cloud DNS), which is asked for names and nothing else.
      [gateway, clusterDns, 53, true],
      [gateway, { address: '169.254.20.10' }, 53, true],
      [gateway, { address: '169.254.20.10' }, 443, false],
      [gateway, { address: '169.254.169.254' }, 80, false],
      [gateway, internet, 53, false],
      [elsewhere, stranger, 80, open],
    ];
    if (has('countersign-backend')) {
      const backend = pods('countersign-backend', { http: 8000 });
      rows.push(
        [gateway, backend, 8000, true],
        [gateway, backend, 22, false],
        [elsewhere, backend, 8000, false],
        [stranger, backend, 8000, false],
        [backend, internet, 443, false],
        [backend, gateway, 8080, false],
      );
    }
    if (has('countersign-picker')) {
      const picker = pods('countersign-picker', { grpc: 9002, metrics: 9090 });
      rows.push(
        [elsewhere, picker, 9002, true],
        [elsewhere, picker, 9090, false],
        [picker, gateway, 9090, true],
        [picker, { address: '10.0.0.1' }, 443, true],
        [picker, { address: '10.0.0.1' }, 6443, true],
        [picker, internet, 80, false],
      );
    }
    for (const [from, to, port, allowed] of rows)
      expect([from, to, port, reaches(policies, from, to, port)]).toEqual([from, to, port, allowed]);
  });
});

describe.each(VALUES)('values/%s.yaml', (name) => {
  it('asks for a privileged namespace only where a step runs as root', () => {
    const users = of(name)
      .all('Deployment')
      .flatMap(containersOf)
      .map(({ securityContext }) => securityContext.runAsUser);
    expect(standardOf(name)).toBe(users.includes(0) ? 'privileged' : 'restricted');
  });
});

describe('the GPU', () => {
  const pod = (name: string) => podOf(of(name));
  const plugin = ({ resources }: Manifest) => resources.limits['nvidia.com/gpu'];

  it.each([DEFAULTS, 'node', 'many', 'node-cpu', 'pool'])(
    'in %s is asked of the device plugin by vLLM only, and shown to the sidecar by the runtime',
    (name) => {
      const sidecar = pod(name).initContainers.find((one: Manifest) => one.name === 'sidecar');
      const workloads = of(name).all('Deployment').flatMap(containersOf);
      expect(workloads.filter((one) => plugin(one) !== undefined).map((one) => one.name)).toEqual(['backend']);
      expect(pod(name).runtimeClassName).toBe('nvidia');
      expect(sidecar.env).toContainEqual({ name: 'NVIDIA_DRIVER_CAPABILITIES', value: 'utility' });
    },
  );

  it('in node-claim is one claim that all use', () => {
    const { initContainers, containers, resourceClaims } = pod('node-claim');
    const users = [...initContainers, ...containers].filter(
      ({ resources }: Manifest) => resources.claims !== undefined,
    );
    expect(users.map(({ name, resources }: Manifest) => [name, resources.claims])).toEqual([
      ['sidecar', [{ name: 'gpu' }]],
      ['ready', [{ name: 'gpu' }]],
      ['backend', [{ name: 'gpu' }]],
    ]);
    expect([...initContainers, ...containers].map(plugin)).not.toContain(1);
    of('node-claim').one('ResourceClaimTemplate', resourceClaims[0].resourceClaimTemplateName);
  });
});

describe('many gateways', () => {
  it('share a store whose address is a Secret, and reach it', () => {
    const many = of('many');
    const gateway = containersOf(many.one('Deployment', 'countersign')).find(({ name }) => name === 'gateway');
    expect(gateway.env).toEqual([
      { name: 'ATTESTATION_STORE_URL', valueFrom: { secretKeyRef: { name: 'countersign-store', key: 'url' } } },
    ]);
    const from = inNamespace(many.one('Deployment', 'countersign').spec.template.metadata.labels);
    const store: Peer = { labels: { 'app.kubernetes.io/name': 'valkey' }, namespace: { any: 'where' } };
    expect(reaches(many.all('NetworkPolicy'), from, store, 6379)).toBe(true);
    expect(reaches(of('node').all('NetworkPolicy'), from, store, 6379)).toBe(false);
  });

  it('ask the vLLM of their own node, on nodes that are kept for GPUs', () => {
    expect(of('many').one('Service', 'countersign-backend').spec.internalTrafficPolicy).toBe('Local');
    const { affinity } = podOf(of('many'));
    const [beside] = affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution;
    expect(beside.topologyKey).toBe('kubernetes.io/hostname');
    const { selector } = of('many').one('Deployment', 'countersign-backend').spec;
    expect(beside.labelSelector).toEqual(selector);
    const [apart] = affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution;
    expect(apart.labelSelector).toEqual(of('many').one('Deployment', 'countersign').spec.selector);
    for (const { spec } of of('many').all('Deployment'))
      expect(spec.template.spec.tolerations).toEqual([
        { key: 'nvidia.com/gpu', operator: 'Exists', effect: 'NoSchedule' },
      ]);
  });
});

describe('GPUs in confidential mode', () => {
  it('are set ready by a step behind the sidecar and before the engine, as root with CAP_SYS_ADMIN and nothing to write on', () => {
    // Wherever there is a GPU: no recipe leaves vLLM with CUDA error 802.
    for (const name of CASES)
      expect([name, podOf(of(name)).initContainers.some((one: Manifest) => one.name === 'ready')]).toEqual([
        name,
        name !== 'demo',
      ]);
    const { initContainers } = podOf(of('pool'));
    expect(initContainers.map(({ name }: Manifest) => name)).toEqual(['sidecar', 'ready']);
    const [sidecar, ready] = initContainers;
    expect(ready.restartPolicy).toBeUndefined();
    expect(ready.command).toEqual(['sh', 'deploy/ready/ready.sh']);
    expect(existsSync('deploy/ready/ready.sh')).toBe(true);
    expect(ready.securityContext).toMatchObject({
      runAsUser: 0,
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'], add: ['SYS_ADMIN', 'SETUID', 'SETGID'] },
    });
    const { runAsUser, runAsGroup } = sidecar.securityContext;
    expect(ready.env).toContainEqual({ name: 'READY_USER', value: `${runAsUser}:${runAsGroup}` });
    expect(ready.env).toContainEqual({ name: 'READY_WITHOUT_ATTESTATION', value: '0' });
    const writable = ready.volumeMounts.filter(({ readOnly }: Manifest) => readOnly !== true);
    expect(writable.map(({ mountPath }: Manifest) => mountPath)).toEqual(['/tmp']);
  });

  it('run vLLM without its second model runner', () => {
    for (const name of [DEFAULTS, 'node', 'many', 'pool']) {
      const backend = of(name)
        .all('Deployment')
        .flatMap(containersOf)
        .find((one) => one.name === 'backend');
      expect(backend?.env).toContainEqual({ name: 'VLLM_USE_V2_MODEL_RUNNER', value: '0' });
    }
  });
});

describe("the processor's evidence", () => {
  it('has one container with root, which makes the entry before the sidecar starts, and has nothing else', () => {
    const { initContainers, containers, volumes } = podOf(of('node-cpu'));
    const [tsm, sidecar] = initContainers;
    expect([tsm.name, tsm.restartPolicy, sidecar.name]).toEqual(['tsm', undefined, 'sidecar']);
    expect(tsm.command).toEqual(['sh', 'sidecar/cpu/tsm-entry.sh', String(sidecar.securityContext.runAsGroup)]);
    expect(existsSync('sidecar/cpu/tsm-entry.sh')).toBe(true);
    expect(tsm.securityContext).toMatchObject({
      runAsUser: 0,
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
    });
    expect(tsm.securityContext.capabilities).toEqual({ drop: ['ALL'], add: ['CHOWN', 'FOWNER', 'DAC_OVERRIDE'] });
    expect(tsm.volumeMounts).toEqual([{ name: 'tsm', mountPath: '/run/tsm' }]);
    const users = [...initContainers, ...containers].filter((one: Manifest) =>
      one.volumeMounts?.some(({ name }: Manifest) => name === 'tsm'),
    );
    expect(users.map(({ name }: Manifest) => name)).toEqual(['tsm', 'sidecar']);
    const { hostPath } = volumes.find(({ name }: Manifest) => name === 'tsm');
    const settings = loadSidecar(of('node-cpu').settings('countersign-sidecar'), 1);
    // A container's own /sys has no place to mount it on, and the runtimes' AppArmor profiles let nobody write below /sys.
    expect(hostPath.path).toBe('/sys/kernel/config/tsm/report');
    for (const { volumeMounts } of users) expect(volumeMounts).toContainEqual({ name: 'tsm', mountPath: '/run/tsm' });
    expect([settings.cpu_evidence, settings.tsm_entry]).toEqual(['required', '/run/tsm/countersign']);
    expect([tsm.env, tsm.envFrom]).toEqual([[{ name: 'TSM_ENTRY', value: settings.tsm_entry }], undefined]);
  });
});

describe('the check against the schemas', () => {
  it.each([
    ['a member that Kubernetes does not know', 'readOnlyRootFilesystem: true', 'readOnlyRootFileSystem: true'],
    ['a value of a wrong type', 'replicas: 1', 'replicas: one'],
    ['a kind that is not described', 'kind: PodDisruptionBudget', 'kind: PodInterruptionBudget'],
  ])('refuses %s', (_what, right, wrong) => {
    const { text } = of('node');
    expect(text).toContain(right);
    expect(conforms(text.replace(right, wrong)).status).toBe(1);
  });
});

// The test suites, one project each: `npm test` runs `unit`, `npm run test:with NAME` another. What is not `unit` installs what it needs, or takes minutes.
import { defineConfig, type Plugin } from 'vitest/config';
import { NEWEST_CLIENTS, newestClients } from './test/clients/newest.ts';

interface Suite {
  readonly include: readonly string[];
  readonly globalSetup?: string;
  readonly plugins?: readonly Plugin[];
  readonly env?: Readonly<Record<string, string>>;
  /** Of one test, in seconds. */
  readonly test_s: number;
  /** Of what is set up before tests and taken down after them, in seconds. */
  readonly hook_s: number;
}

const SUITES: Readonly<Record<string, Suite>> = {
  unit: { include: ['test/**/*.test.ts'], plugins: [newestClients('/test/decoders/')], test_s: 20, hook_s: 20 },
  /** The verifier's bundle, and how EventSource reads streams, in Chromium. */
  browser: {
    include: ['test/browser/**/*.browser.ts', 'test/decoders/**/*.browser.ts'],
    globalSetup: 'test/browser/setup.ts',
    test_s: 60,
    hook_s: 60,
  },
  /** The page in Chromium, on a gateway of its own. */
  page: { include: ['test/page/**/*.page.ts'], globalSetup: 'test/browser/setup.ts', test_s: 60, hook_s: 60 },
  /** The clients of npm once more, in their newest versions: some install on newer versions of Node only. Those of Python are a folder below. */
  clients: {
    include: ['test/clients/*.test.ts'],
    globalSetup: 'test/clients/newest.ts',
    plugins: [newestClients()],
    env: { NEWEST_CLIENTS },
    test_s: 20,
    hook_s: 20,
  },
  /** Our verifiers and NVIDIA's over vectors/, as programs, and docs/conformance.md beside them. */
  conformance: { include: ['test/conformance/**/*.conformance.ts'], test_s: 900, hook_s: 300 },
  /** The images and compose.yaml on a Docker daemon of its own. */
  containers: {
    include: ['test/containers/**/*.containers.ts'],
    globalSetup: 'test/containers/setup.ts',
    test_s: 180,
    hook_s: 180,
  },
  /** The image for confidential VMs, built twice and booted in QEMU, after its firmware; and Azure's collector over a software TPM. */
  cvm: { include: ['test/cvm/**/*.cvm.ts'], test_s: 60, hook_s: 60 },
  /** The systemd units under a systemd of their own, the Kubernetes manifests against its schemas, compose.cpu.yaml by Compose v2. */
  deploy: { include: ['test/deploy/**/*.deploy.ts'], test_s: 60, hook_s: 60 },
  /** A real nginx in front of the gateway, which sees sealed requests. */
  edge: { include: ['test/edge/**/*.edge.ts'], test_s: 60, hook_s: 240 },
  /** A real llama-server behind the gateway, built at the first run. */
  engines: { include: ['test/engines/**/*.engine.ts'], globalSetup: 'test/engines/setup.ts', test_s: 60, hook_s: 60 },
  /** Every program of examples/ as a reader would run it. */
  examples: { include: ['test/examples/**/*.{test,example}.ts'], test_s: 120, hook_s: 300 },
  /** The service as processes, and everything that can happen to them. Linux only. */
  faults: { include: ['test/faults/**/*.faults.ts'], globalSetup: 'test/faults/bound.ts', test_s: 100, hook_s: 20 },
  /** A real endpoint picker, Envoy and API server before three pods. They are built or fetched first. */
  fleet: { include: ['test/fleet/**/*.fleet.ts'], test_s: 240, hook_s: 2400 },
  /** Mozilla's Oblivious HTTP and binary HTTP, in Rust, as the other side of sealed messages. They are built first. */
  interop: { include: ['test/interop/**/*.interop.ts'], test_s: 120, hook_s: 1300 },
  /** NVIDIA's own verifier over the genuine evidence, beside ours. */
  nvidia: { include: ['test/nvidia/**/*.nvidia.ts'], globalSetup: 'test/nvidia/setup.ts', test_s: 180, hook_s: 60 },
  /** NVIDIA's own Python SDK over a simulated GPU. */
  nvtrust: { include: ['test/**/*.nvtrust.ts'], globalSetup: 'test/twin/setup.ts', test_s: 60, hook_s: 60 },
  /** The npm package, packed and installed elsewhere, on every runtime that it is made for. */
  package: { include: ['test/package/**/*.package.ts'], test_s: 180, hook_s: 180 },
  /** Prometheus' own tool reads the metrics and the alert rules, Prometheus the dashboard's queries. Both are built from Go first. */
  promtool: {
    include: ['test/promtool/**/*.promtool.ts'],
    globalSetup: 'test/promtool/setup.ts',
    test_s: 30,
    hook_s: 30,
  },
  /** The Python package: the same verdicts as verify/, its own tests, types and style. */
  python: { include: ['test/python/**/*.python.ts'], test_s: 120, hook_s: 300 },
  /** A release without its uploads: versions, packages, checksums, and the workflow that does it. */
  release: {
    include: ['test/release/**/*.release.ts'],
    globalSetup: 'test/release/setup.ts',
    test_s: 300,
    hook_s: 300,
  },
  /** openai-python's own API tests, directly and through the gateway; LiteLLM on either side of it. */
  sdk: { include: ['test/sdk/**/*.sdk.ts'], test_s: 900, hook_s: 900 },
  /** The documentation's site in Chromium, and the code of its first pages, run as a reader would. */
  site: { include: ['test/docs/**/*.site.ts'], globalSetup: 'test/browser/setup.ts', test_s: 300, hook_s: 300 },
  /** A real Valkey or Redis server between gateways. */
  store: { include: ['test/store/**/*.store.ts'], test_s: 60, hook_s: 240 },
};

const projects = Object.entries(SUITES).map(([name, { include, globalSetup, plugins, env, test_s, hook_s }]) => ({
  plugins: [...(plugins ?? [])],
  test: {
    name,
    include: [...include],
    env: { ...env },
    ...(globalSetup === undefined ? {} : { globalSetup: [globalSetup] }),
    testTimeout: test_s * 1000,
    hookTimeout: hook_s * 1000,
    // Two workers for the unit tests, which are meant for small machines: each file starts servers of its own. One for all others.
    fileParallelism: name === 'unit',
    maxWorkers: name === 'unit' ? 2 : 1,
    sequence: { groupOrder: name === 'unit' ? 0 : 1 },
  },
}));

export default defineConfig({
  test: {
    projects,
    reporters: ['default', './test/support/reporter.ts'],
    // Taking containers down takes a while.
    teardownTimeout: 120_000,
  },
});

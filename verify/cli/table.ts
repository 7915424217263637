// The command line as data: its commands and their options. Parsing, help, shell completion and the man page are made from it.
import { PRODUCTS } from '../cpu.ts';
import { LEVELS } from '../index.ts';

/** What AMD's report must say, by the option `--demand`. */
export const DEMANDS = ['alias_check', 'ciphertext_hiding', 'smt_off'] as const;

export interface Option {
  readonly name: string;
  /** One letter that stands for it. */
  readonly short?: string;
  /** The name of its value; absent: the option has none. */
  readonly value?: string;
  readonly multiple?: boolean;
  readonly text: string;
  /** The values that may follow, for completion. */
  readonly among?: readonly string[];
}

export interface Command {
  readonly name: string;
  /** The names of the operands. */
  readonly operands: string;
  readonly text: string;
  readonly options: readonly Option[];
  readonly examples: readonly string[];
}

const ROOT: Option = {
  name: 'allow-simulated',
  value: 'ROOT',
  text: 'accept a simulated GPU under this test root (a PEM file)',
};
const AT: Option = {
  name: 'at',
  value: 'TIME',
  text: 'check as of this time (ISO 8601 or Unix seconds) instead of now',
};

const EXCHANGE: readonly Option[] = [
  { name: 'request', value: 'FILE', text: 'the request you sent; must equal the one that was signed' },
  {
    name: 'endpoint',
    value: 'PATH',
    text: 'the endpoint you asked, such as /v1/responses; must be the one that was signed',
  },
  { name: 'response', value: 'FILE', text: 'the response you received, without its attestation' },
  { name: 'event', text: 'FILE is one event of a stream by itself, which shows only a part of the response' },
];
const COLLATERAL: readonly Option[] = [
  { name: 'offline', text: 'no network: what is not given counts as unavailable' },
  {
    name: 'collateral',
    value: 'DIR',
    text: 'reference values and OCSP responses from a folder that `collateral` filled',
  },
  { name: 'rim-dir', value: 'DIR', text: 'reference values (RIM files) from a folder' },
  { name: 'ocsp', value: 'FILE', multiple: true, text: 'an OCSP response, DER or base64; may be repeated' },
];
const SERVICES: readonly Option[] = [
  { name: 'rim-url', value: 'URL', text: "another service for reference values than NVIDIA's" },
  { name: 'ocsp-url', value: 'URL', text: "another OCSP responder than NVIDIA's" },
];
const WITHOUT_REVOCATION: Option = {
  name: 'without-revocation',
  text: 'do not ask whether certificates were revoked (shown as a skip)',
};
const WITHOUT: readonly Option[] = [
  { name: 'without-reference-values', text: "do not compare the GPU's measurements (shown as a skip)" },
  WITHOUT_REVOCATION,
];
export const POLICY: readonly Option[] = [
  {
    name: 'require-level',
    value: 'LEVEL',
    text: 'the least level that is accepted; without it, of an answer: gpu, and none with --allow-simulated',
    among: LEVELS,
  },
  { name: 'max-age', value: 'SECONDS', text: 'refuse an attestation older than this' },
  { name: 'max-batch', value: 'N', text: 'refuse one whose signature is shared by more than N answers' },
];
export const SESSION: readonly Option[] = [
  {
    name: 'session',
    value: 'FILE',
    text: 'the session of an attestation that names it and carries neither it nor a bundle',
  },
];
export const BUNDLE: Option = {
  name: 'bundle',
  value: 'FILE',
  multiple: true,
  text: 'a bundle that a compact attestation names, or a folder of some (HASH.json); may be repeated',
};
export const DEVICE: Option = {
  name: 'device',
  value: 'HEX',
  multiple: true,
  text: "accept this GPU or switch only: 64 digits, as in a session's statement; may be repeated",
};
const CHALLENGE: Option = { name: 'challenge', value: 'HEX', text: '64 digits that the session must hold' };
const NONCE: Option = { name: 'nonce', value: 'HEX', text: '64 digits: the nonce that every device must have signed' };
export const PROCESSOR: readonly Option[] = [
  {
    name: 'product',
    value: 'NAME',
    multiple: true,
    text: "of AMD's: accept this product; may be repeated; Genoa and Turin without it. An answer must then be of level gpu+cpu",
    among: PRODUCTS,
  },
  {
    name: 'tcb',
    value: 'STATUS',
    multiple: true,
    text: "of Intel's: accept this TCB status; may be repeated; UpToDate without it. An answer must then be of level gpu+cpu",
  },
  {
    name: 'chip',
    value: 'HEX',
    multiple: true,
    text: "accept this processor only: AMD's chip id or Intel's PPID; may be repeated. An answer must then be of level gpu+cpu",
  },
  {
    name: 'demand',
    value: 'NAME',
    multiple: true,
    text: "of AMD's: what the report must say; may be repeated. An answer must then be of level gpu+cpu",
    among: DEMANDS,
  },
  {
    name: 'reference',
    value: 'FILE',
    text: 'guests and launch files that you know: an answer must then be of level measured, from one of them',
  },
];
const WEIGHTS: Option = {
  name: 'weights',
  value: 'FILE|ROOT',
  text: 'the weights that the launch file must name: weights.json or their verity root. An answer must then be of level measured, for which --reference names the software',
};
const RELEASE: readonly Option[] = [
  {
    name: 'release',
    value: '[OWNER/REPO][@TAG]',
    text: 'take the list of --reference from this signed release: an answer must then be of level measured. Without @TAG any that a fresh status does not withdraw',
  },
  { name: 'trusted-root', value: 'FILE', text: 'of --release: a Sigstore trusted root in place of the public one' },
];
const RELEASE_FROM: Option = {
  name: 'gateway',
  value: 'URL',
  text: 'of --release: ask this service for the release and its status first, and GitHub only where it has none',
};
/** What a guest must run, beside `--reference`. */
export const SOFTWARE: readonly Option[] = [WEIGHTS, ...RELEASE, RELEASE_FROM];
const REPORT_DATA: Option = {
  name: 'report-data',
  value: 'HEX',
  text: 'what the processor must have been given to sign, at most 64 bytes',
};
export const JSON_OUTPUT: Option = { name: 'json', text: 'the report as JSON' };
const VERBOSE: Option = { name: 'verbose', text: 'print every check, what is proven and what is not' };
const OUTPUT: readonly Option[] = [
  VERBOSE,
  JSON_OUTPUT,
  { name: 'quiet', text: 'print nothing; the exit status is the answer' },
];
export const GPU: readonly Option[] = [ROOT, ...COLLATERAL, ...SERVICES, AT, ...WITHOUT];

export const COMMANDS: readonly Command[] = [
  {
    name: 'verify',
    operands: 'FILE',
    text: 'check an answer: a saved answer or stream, or its attestation; or all of a folder or of a file of lines (.jsonl)',
    options: [
      ...EXCHANGE,
      ...GPU,
      BUNDLE,
      ...SESSION,
      CHALLENGE,
      DEVICE,
      ...POLICY,
      ...PROCESSOR,
      ...SOFTWARE,
      ...OUTPUT,
    ],
    examples: [
      'countersign verify answer.json',
      'countersign verify answer.json --request request.json --max-age 300',
      'countersign verify answer.json --allow-simulated run/simulated-root/root.pem',
      'countersign verify answers/2026-11 --bundle bundles',
      'countersign verify answer.json --release OWNER/REPO --gateway https://gateway.example',
      'curl -sN … | countersign verify - --request request.json --quiet && echo proven',
    ],
  },
  {
    name: 'evidence',
    operands: 'FILE',
    text: 'check bare GPU evidence: a JSON array of {arch, certificate, evidence, nonce}',
    options: [...GPU, NONCE, DEVICE, ...POLICY.slice(0, 1), ...OUTPUT],
    examples: ['countersign evidence evidence.json --nonce "$nonce"'],
  },
  {
    name: 'cpu',
    operands: 'FILE',
    text: "check a processor's bare evidence: the JSON of an attestation's member cpu",
    options: [ROOT, AT, WITHOUT_REVOCATION, REPORT_DATA, ...PROCESSOR, ...OUTPUT],
    examples: ['countersign cpu evidence.json --product Milan'],
  },
  {
    name: 'session',
    operands: 'FILE',
    text: 'check a session by itself: what GET /v1/attestation/session returned',
    options: [...GPU, CHALLENGE, DEVICE, ...POLICY.slice(0, 1), ...PROCESSOR, ...SOFTWARE, ...OUTPUT],
    examples: ['countersign session session.json --challenge "$challenge"'],
  },
  {
    name: 'collateral',
    operands: 'FILE',
    text: 'fetch and keep what the check of FILE needs, for use with --offline --collateral DIR',
    options: [
      { name: 'into', value: 'DIR', text: 'the folder that is filled; made where it does not exist' },
      BUNDLE,
      ROOT,
      ...SERVICES,
      AT,
      ...WITHOUT,
      ...RELEASE,
      RELEASE_FROM,
      VERBOSE,
      JSON_OUTPUT,
    ],
    examples: [
      'countersign collateral answer.json --into collateral',
      'countersign verify answer.json --offline --collateral collateral',
    ],
  },
  {
    name: 'export',
    operands: 'FILE',
    text: "print an attestation's or a session's evidence in another form; nothing is verified",
    options: [{ name: 'cmw', text: 'a CMW collection (RFC 9999) of what devices and processor signed' }],
    examples: ['countersign export answer.json --cmw'],
  },
  {
    name: 'expand',
    operands: 'FILE',
    text: 'print FILE with its compact attestation made whole, so that it stands for itself; its signatures are not verified',
    options: [
      BUNDLE,
      { name: 'url', value: 'URL', text: 'ask this service for the bundle, such as http://127.0.0.1:8080/v1' },
    ],
    examples: [
      'countersign expand answer.json --bundle bundle.json > whole.json',
      'countersign expand answer.json --url http://127.0.0.1:8080/v1 > whole.json',
    ],
  },
  {
    name: 'proxy',
    operands: '',
    text: "serve OpenAI's API on this machine for clients that take a URL alone: their requests are sealed to the attested machine, answers verified",
    options: [
      { name: 'gateway', value: 'URL', text: 'the service, such as https://gateway.example' },
      { name: 'port', value: 'N', text: 'on 127.0.0.1; 8787 without it, 0: any that is free' },
      {
        name: 'min-level',
        value: 'LEVEL',
        text: 'the least level of the machine that requests are sealed to; measured without it, for which --reference or --release names the software; with --plain as of `verify --require-level`. With less, anybody who runs that machine may read them',
        among: LEVELS,
      },
      {
        name: 'api-key-file',
        value: 'FILE',
        text: 'a file that holds the API key of the gateway; it is sent inside of the seal',
      },
      {
        name: 'edge-key-file',
        value: 'FILE',
        text: 'a file that holds a key for what stands before the gateway; it is sent outside of the seal',
      },
      {
        name: 'token-file',
        value: 'FILE',
        text: "the proxy's own key, for its clients to send as their API key; made where the file does not exist; without it, a new one is printed",
      },
      {
        name: 'allow-origin',
        value: 'ORIGIN',
        multiple: true,
        text: 'web pages of this origin may use the proxy, with its key; may be repeated; none without it',
      },
      {
        name: 'unproven-path',
        value: 'PATH',
        multiple: true,
        text: 'hand over answers of this path although nothing proves them, such as /v1/audio/speech; may be repeated',
      },
      {
        name: 'without-challenge',
        text: 'a session of this hour will do: for a gateway that requires an API key for one that is made now, and no key is to be sent outside of the seal',
      },
      { name: 'padding', text: 'pad requests to 1, 4, 16 or 64 KiB, so that their sizes say less' },
      { name: 'plain', text: 'seal nothing: whatever stands before the gateway reads prompts; answers are verified' },
      ...GPU.filter(({ name }) => name !== 'at'),
      DEVICE,
      ...PROCESSOR,
      WEIGHTS,
      ...RELEASE,
    ],
    examples: [
      'countersign proxy --gateway https://gateway.example --reference reference.json --api-key-file key --without-challenge',
      'countersign proxy --gateway http://127.0.0.1:8080 --allow-simulated run/simulated-root/root.pem --min-level none',
    ],
  },
  {
    name: 'completion',
    operands: 'bash|zsh|fish',
    text: 'print a script that completes commands and options in your shell',
    options: [],
    examples: ['source <(countersign completion bash)'],
  },
];

/** Commands of the service's own bin/countersign.js, which the npm package does not contain. */
export const OF_SERVICE: readonly Pick<Command, 'name' | 'text'>[] = [
  { name: 'keys', text: 'make and list API keys of a gateway' },
  { name: 'audit-log', text: "follow the lines of a gateway's audit log" },
  { name: 'doctor', text: 'examine a node: driver, GPUs, services, configuration' },
];

export const EXIT_STATUS: readonly (readonly [status: number, text: string])[] = [
  [0, 'valid, of several all; passed; consistent; unbroken; done'],
  [1, 'invalid, of several any; refused; different; broken; not consistent'],
  [
    2,
    'usage: the command line, a file that cannot be read, a history that was changed, a service that cannot be reached',
  ],
  [
    3,
    'incomplete: nothing was found wrong, but a required check could not run (no network, no collateral, no bundle, no release), a node that is away, or too little to judge by',
  ],
];

// .github/workflows/release.yml as data, and its steps run here: a step's own script, under bash as a runner has it, with programs that reach out replaced.
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { ROOT } from './copy.ts';

export interface Step {
  readonly name?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface Job {
  readonly needs?: string | readonly string[];
  readonly permissions: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly env: Readonly<Record<string, string>>;
  readonly permissions: unknown;
  readonly jobs: Readonly<Record<string, Job>>;
}

export const FILE = join(ROOT, '.github/workflows/release.yml');
export const workflow = parse(readFileSync(FILE, 'utf8')) as Workflow;
/** Of another file beside it. */
export const workflowIn = (name: string): Workflow => parse(readFileSync(join(FILE, '..', name), 'utf8')) as Workflow;

export interface Where {
  readonly cwd: string;
  /** What GitHub would fill in. */
  readonly env: Readonly<Record<string, string>>;
  /** Programs in place of those that need the network or a secret: a shell script by name. */
  readonly programs?: Readonly<Record<string, string>>;
}

/** Whatever a step calls in earnest reaches no registry. */
const NOWHERE = {
  npm_config_registry: 'http://127.0.0.1:9/',
  UV_PUBLISH_URL: 'http://127.0.0.1:9/',
  PIP_NO_INDEX: '1',
  GOPROXY: 'off',
};

/** Runs a step by its job and name. Values that GitHub fills in come from `env`, and one that is missing is an error. */
export function runStep(job: string, name: string, { cwd, env, programs = {} }: Where, of = workflow) {
  const { steps = [], env: ofJob } = of.jobs[job] ?? {};
  const step = steps.find((one) => one.name === name);
  if (step?.run === undefined) throw new TypeError(`${job} has no step ${name} that runs`);
  const stated = Object.entries({ ...of.env, ...ofJob, ...step.env });
  const fixed = Object.fromEntries(stated.filter(([, value]) => !value.includes('${{')));
  for (const [key, value] of stated)
    if (value.includes('${{') && !(key in env)) throw new TypeError(`${name} is given no ${key}`);
  const folder = join(cwd, '.git/programs');
  mkdirSync(folder, { recursive: true });
  for (const [program, script] of Object.entries(programs)) {
    writeFileSync(join(folder, program), `#!/bin/bash\nset -euo pipefail\n${script}\n`);
    chmodSync(join(folder, program), 0o755);
  }
  const { PATH = '', HOME = '' } = process.env;
  const { status, stdout, stderr } = spawnSync('bash', ['--noprofile', '--norc', '-e', '-c', step.run], {
    cwd,
    env: { PATH: `${folder}:${PATH}`, HOME, ...NOWHERE, ...fixed, ...env },
    // With a socket for its input bash takes itself for a login from afar, and reads a .bashrc that may put other programs first.
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
  });
  return { status, said: `${stdout}${stderr}` };
}

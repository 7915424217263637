// The demo profile of compose.yaml, up on the test's own Docker.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { composeProgram } from '../support/compose-program.ts';
import { attempt, type Ended, run } from './command.ts';
import { docker } from './daemon.ts';
import { imageOf, type Sizes } from './images.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const PROJECT = 'countersign-test';
export const KEY = readFileSync(new URL('../../deploy/demo/api-keys', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .at(-1);

/** What the setup hands to the tests. */
export interface Made {
  /** DOCKER_HOST. */
  readonly host: string;
  /** Where the node's published ports are, and this machine as the node sees it. */
  readonly address: string;
  readonly outside: string;
  readonly sizes: Sizes;
  /** From `compose up` to the first verified answer. */
  readonly first_answer_ms: number;
}

export interface Stage {
  /** `http://ADDRESS:PORT` of the gateway. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  compose(...args: string[]): Promise<string>;
  /** However it ended; with further variables, as .env would have them. */
  composeWith(variables: Readonly<Record<string, string>>, ...args: string[]): Promise<Ended>;
  docker(...args: string[]): Promise<string>;
  /** JavaScript in a service's container, as its own user. */
  inside(service: string, script: string): Promise<Ended>;
  /** JavaScript in a new container of the gateway's image, with further `docker run` flags. */
  beside(flags: readonly string[], script: string): Promise<Ended>;
  container(service: string): string;
}

const PORT = '8080';

export function stageOf({ host, address }: Pick<Made, 'host' | 'address'>): Stage {
  const env = {
    DOCKER_HOST: host,
    COMPOSE_PROJECT_NAME: PROJECT,
    // Nothing of a developer's own .env, and nothing but the demo.
    COMPOSE_PROFILES: 'demo',
    COMPOSE_FILE: 'compose.yaml',
    BIND: address,
    PORT,
    GATEWAY_IMAGE: imageOf('gateway'),
    SIDECAR_IMAGE: imageOf('sidecar'),
    DEMO_SIDECAR_IMAGE: imageOf('demo-sidecar'),
    DEMO_ENGINE_IMAGE: imageOf('demo-engine'),
  };
  const options = { env, cwd: ROOT };
  const container = (service: string) => `${PROJECT}-${service}-1`;
  const program = composeProgram();
  return {
    url: `http://${address}:${PORT}`,
    headers: { authorization: `Bearer ${KEY}` },
    container,
    compose: (...args) => run(program, args, options),
    composeWith: (variables, ...args) => attempt(program, args, { ...options, env: { ...env, ...variables } }),
    docker: (...args) => run(docker, args, options),
    inside: (service, script) => attempt(docker, ['exec', container(service), 'node', '-e', script], options),
    beside: (flags, script) =>
      attempt(docker, ['run', '--rm', ...flags, imageOf('gateway'), 'node', '-e', script], options),
  };
}

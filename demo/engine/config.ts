// The demo engine's settings: the one place in this process that reads the environment.
import * as z from 'zod';

/** Every variable, with what it means: docs/configuration.md is made from this. */
export const schema = z.object({
  HOST: z.string().min(1).default('127.0.0.1').describe('The address to listen on'),
  PORT: z.coerce.number().int().min(0).max(65_535).default(8000).describe('The port to listen on; 0: a free one'),
  LOG_LEVEL: z.string().default('info').describe('From `info` on it says where it listens'),
});

export interface EngineConfig {
  readonly host: string;
  readonly port: number;
  /** Says where it listens. */
  readonly talks: boolean;
}

/** The configuration does not allow a start. The message is one line that names the variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** @throws {ConfigError} */
export function loadConfig(env: NodeJS.ProcessEnv): EngineConfig {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = schema.safeParse(given);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new ConfigError(`${String(issue?.path[0])}: ${issue?.message}`);
  }
  const { HOST, PORT, LOG_LEVEL } = parsed.data;
  return { host: HOST.replace(/^\[|\]$/g, ''), port: PORT, talks: ['trace', 'debug', 'info'].includes(LOG_LEVEL) };
}

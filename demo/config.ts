// The launcher's settings, with the demo's defaults: the one place in this process that reads the environment.
import { ConfigError, type GatewayConfig, loadConfig, NO_ARGUMENTS } from '../gateway/config.ts';

export interface DemoConfig {
  readonly gateway: GatewayConfig;
  /** Starts the demo engine: neither BACKEND_URL nor BACKENDS_FILE was given. */
  readonly engine: boolean;
  /** Environment for the processes that are started. */
  readonly env: NodeJS.ProcessEnv;
}

export { ConfigError, NO_ARGUMENTS };

/** Where the demo's defaults are not the processes' own. */
export const DEMO_DEFAULTS = { ALLOW_SIMULATED: '1', ATTESTER: 'simulated', LOG_LEVEL: 'warn' };

/** A free port is taken for the engine. @throws {ConfigError} */
export function loadDemoConfig(env: NodeJS.ProcessEnv): DemoConfig {
  const engine = !env.BACKEND_URL && !env.BACKENDS_FILE;
  const withDefaults = { ...env };
  for (const [name, value] of Object.entries(DEMO_DEFAULTS)) withDefaults[name] ??= value;
  if (withDefaults.ATTESTER === 'simulated') withDefaults.CPU_EVIDENCE ??= 'required';
  const gateway = loadConfig(engine ? { ...withDefaults, BACKEND_URL: 'http://127.0.0.1:1/v1' } : withDefaults);
  return { gateway, engine, env: withDefaults };
}

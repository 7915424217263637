// The launcher's settings, with the demo's defaults: the one place in this process that reads the environment.
import { ConfigError, type GatewayConfig, loadConfig } from '../gateway/base/config.ts';
import { type DemoOptions, readDemoOptions } from './options.ts';

export interface DemoConfig {
  readonly gateway: GatewayConfig;
  /** Starts the demo engine: neither BACKEND_URL nor BACKENDS_FILE was given. */
  readonly engine: boolean;
  readonly options: DemoOptions;
  /** The sidecar's machine is the simulated one. */
  readonly simulated: boolean;
  /** Environment for the processes that are started. */
  readonly env: NodeJS.ProcessEnv;
}

export { ConfigError };

/** Where the demo's defaults are not the processes' own. */
export const DEMO_DEFAULTS = { ALLOW_SIMULATED: '1', ATTESTER: 'simulated', LOG_LEVEL: 'warn' };
/** Those with a simulated GPU. */
export const SIMULATED_DEFAULTS = { CPU_EVIDENCE: 'required' };

/** A free port is taken for the engine. @throws {ConfigError} */
export function loadDemoConfig(env: NodeJS.ProcessEnv, options: DemoOptions = readDemoOptions([])): DemoConfig {
  const engine = !env.BACKEND_URL && !env.BACKENDS_FILE;
  if (options.model && !engine)
    throw new ConfigError('--model is for the demo engine: unset BACKEND_URL and BACKENDS_FILE');
  const withDemo: NodeJS.ProcessEnv = { ...DEMO_DEFAULTS, ...env };
  const simulated = withDemo.ATTESTER === 'simulated';
  if (options.twin.length > 0 && !simulated)
    throw new ConfigError(`${options.twin[0]} is for the simulated machine: unset ATTESTER`);
  const withDefaults = simulated ? { ...SIMULATED_DEFAULTS, ...withDemo } : withDemo;
  const gateway = loadConfig(engine ? { ...withDefaults, BACKEND_URL: 'http://127.0.0.1:1/v1' } : withDefaults);
  return { gateway, engine, options, simulated, env: withDefaults };
}

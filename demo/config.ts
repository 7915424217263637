// The launcher's settings, with the demo's defaults: the one place in this process that reads the environment.
import { ConfigError, type GatewayConfig, loadConfig } from '../gateway/base/config.ts';

export interface DemoConfig {
  readonly gateway: GatewayConfig;
  /** Starts the demo engine: neither BACKEND_URL nor BACKENDS_FILE was given. */
  readonly engine: boolean;
  /** The demo engine has a real model too. */
  readonly model: boolean;
  /** Environment for the processes that are started. */
  readonly env: NodeJS.ProcessEnv;
}

export { ConfigError };

const OPTIONS = 'the only option is --model: settings are environment variables, all of them in docs/configuration.md';

/** Where the demo's defaults are not the processes' own. */
export const DEMO_DEFAULTS = { ALLOW_SIMULATED: '1', ATTESTER: 'simulated', LOG_LEVEL: 'warn' };
/** Those with a simulated GPU. */
export const SIMULATED_DEFAULTS = { CPU_EVIDENCE: 'required' };

/** A free port is taken for the engine. @throws {ConfigError} */
export function loadDemoConfig(env: NodeJS.ProcessEnv, args: readonly string[] = []): DemoConfig {
  const model = args.length > 0;
  if (args.some((arg) => arg !== '--model')) throw new ConfigError(OPTIONS);
  const engine = !env.BACKEND_URL && !env.BACKENDS_FILE;
  if (model && !engine) throw new ConfigError('--model is for the demo engine: unset BACKEND_URL and BACKENDS_FILE');
  const withDemo: NodeJS.ProcessEnv = { ...DEMO_DEFAULTS, ...env };
  const withDefaults = withDemo.ATTESTER === 'simulated' ? { ...SIMULATED_DEFAULTS, ...withDemo } : withDemo;
  const gateway = loadConfig(engine ? { ...withDefaults, BACKEND_URL: 'http://127.0.0.1:1/v1' } : withDefaults);
  return { gateway, engine, model, env: withDefaults };
}

// The sidecar over a simulated machine: GPUs and a processor in software, for the demo and the tests. It proves the formats, and nothing else.
import { hash } from 'node:crypto';
import { ConfigError } from '../../node/settings.ts';
import { type Machine, runSidecar } from '../../sidecar/run.ts';
import { createSimulatedCpu } from './cpu.ts';
import { createSimulatedAttester } from './gpu.ts';
import { OptionError, readTwinOptions } from './options.ts';

await runSidecar({ ...process.env, ATTESTER: 'simulated' }, () => simulatedMachine(process.argv.slice(2)));

/** @throws {ConfigError} */
function simulatedMachine(args: readonly string[]): Machine {
  const { gpus, collection_ms, cpu, cpu_ms, root_dir: rootDir } = optionsOf(args);
  return {
    createAttester: () => createSimulatedAttester({ rootDir, collectionMs: collection_ms, devices: gpus }),
    createCpuCollector: (_config, _log, launch) =>
      createSimulatedCpu({
        type: cpu,
        rootDir,
        collectionMs: cpu_ms,
        launch: launch === null ? null : hash('sha256', launch, 'buffer'),
      }),
  };
}

function optionsOf(args: readonly string[]) {
  try {
    return readTwinOptions(args);
  } catch (error) {
    if (error instanceof OptionError) throw new ConfigError(error.message, { cause: error });
    throw error;
  }
}

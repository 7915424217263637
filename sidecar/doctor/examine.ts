// Looks at a node from the driver up to one verified attestation, each check in its own file, in the order of repair.
import { checkClock } from './clock.ts';
import type { DoctorConfig } from './config.ts';
import { checkContainer } from './container.ts';
import { checkDevices } from './devices.ts';
import { checkDriver } from './driver.ts';
import { gatherFacts } from './facts.ts';
import type { Finding } from './finding.ts';
import type { Host } from './host.ts';
import { checkMode } from './mode.ts';
import { probeServices } from './probe.ts';
import { checkRequirements } from './requirements.ts';
import { checkServices } from './services.ts';
import { checkSocket } from './socket.ts';
import { checkTrial } from './trial.ts';

export async function examine(host: Host, config: DoctorConfig): Promise<Finding[]> {
  const facts = await gatherFacts(host, config);
  const probes = await probeServices(host, config, facts);
  const hardware = [
    ...(await checkContainer(host)),
    ...checkDriver(facts),
    ...(await checkDevices(host, facts)),
    ...checkMode(facts, config.attester),
    ...checkServices(probes, facts),
  ];
  return [
    ...(config.attester === 'simulated' ? hardware.map(notNeeded) : hardware),
    ...(await checkRequirements(host, config, facts)),
    ...checkClock(probes, host.now()),
    ...(await checkSocket(host, config)),
    ...(await checkTrial(host, config)),
  ];
}

/** The software twin does without all of it. */
const notNeeded = (finding: Finding): Finding =>
  finding.status === 'ok' || finding.status === 'skip'
    ? finding
    : { name: finding.name, status: 'skip', seen: `${finding.seen}; ATTESTER=simulated does without` };

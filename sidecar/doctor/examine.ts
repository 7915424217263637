// Looks at a node from the driver up to one verified attestation, in the order of repair.
import type { SidecarConfig } from '../config.ts';
import { checkCpu } from './cpu-checks.ts';
import type { Finding } from './finding.ts';
import type { Host } from './host.ts';
import { gatherFacts } from './host.ts';
import { checkContainer, checkDevices, checkDriver, checkMode, checkRequirements, checkSocket } from './node-checks.ts';
import { checkClock, checkServices, checkTrial, probeServices } from './service-checks.ts';

export async function examine(host: Host, config: SidecarConfig): Promise<Finding[]> {
  const facts = await gatherFacts(host, config);
  const cpu = await checkCpu(host, config);
  const probes = await probeServices(host, config, facts, cpu.type);
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
    ...cpu.findings,
    ...checkClock(probes, host.now()),
    ...(await checkSocket(host, config)),
    ...(await checkTrial(host, config)),
  ];
}

/** The software twin needs none of the hardware. */
const notNeeded = (finding: Finding): Finding =>
  finding.status === 'ok' || finding.status === 'skip'
    ? finding
    : { name: finding.name, status: 'skip', seen: `${finding.seen}; ATTESTER=simulated does without` };

// The report as text: one line for each finding, and under it what to do.

const NAME_WIDTH = 12;

export function printFindings(findings: readonly Finding[]): string {
  const lines = findings.flatMap(({ name, status, seen, todo }) => [
    `${status.padEnd(4)}  ${name.padEnd(NAME_WIDTH)} ${seen}`,
    ...(todo === undefined ? [] : [`${' '.repeat(NAME_WIDTH + 7)}→ ${todo}`]),
  ]);
  const count = (wanted: Finding['status']) => findings.filter(({ status }) => status === wanted).length;
  const total = `${count('ok')} ok, ${count('warn')} warn, ${count('fail')} fail, ${count('skip')} skip`;
  return [...lines, '', total].join('\n');
}

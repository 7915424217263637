// Runs the doctor's checks, from the driver up to one verified attestation, in the order of repair.
import type { SidecarConfig } from '../common/config.ts';
import { checkCpu } from './cpu-checks.ts';
import { checkDriver, checkLkca, checkPersistence } from './driver-checks.ts';
import type { Finding } from './finding.ts';
import { checkBackend, DEFAULT_GATEWAY } from './gateway-check.ts';
import type { Host } from './host.ts';
import { gatherFacts } from './host.ts';
import {
  checkContainer,
  checkDevices,
  checkMode,
  checkReadyGate,
  checkRequirements,
  checkSocket,
  checkSwitches,
  containerKind,
} from './node-checks.ts';
import { checkClock, checkClockSource, checkServices, checkTrial, probeServices } from './service-checks.ts';

export async function examine(host: Host, config: SidecarConfig, gateway_url = DEFAULT_GATEWAY): Promise<Finding[]> {
  const facts = await gatherFacts(host, config);
  const container = await containerKind(host);
  const cpu = await checkCpu(host, config, container);
  const probes = await probeServices(host, config, facts, cpu.type);
  const hardware = [
    ...(await checkContainer(host, container)),
    ...checkDriver(facts),
    ...(await checkLkca(host, facts, container)),
    ...checkPersistence(facts),
    ...(await checkDevices(host, facts)),
    ...checkMode(facts, config.attester),
    ...(await checkReadyGate(host, container)),
    ...(await checkSwitches(host, facts, container)),
    ...checkServices(probes, facts),
  ];
  return [
    ...(config.attester === 'simulated' ? hardware.map(notNeeded) : hardware),
    ...(await checkRequirements(host, config, facts)),
    ...cpu.findings,
    ...checkClock(probes, host.now()),
    ...(await checkClockSource(host)),
    ...(await checkSocket(host, config)),
    ...(await checkTrial(host, config)),
    ...(await checkBackend(host, gateway_url)),
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

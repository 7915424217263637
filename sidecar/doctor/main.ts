// `countersign doctor`: what this node has and lacks for attestation. Exits 0, 1 when something fails, 2 on a wrong usage.
import { parseArgs } from 'node:util';
import { type DoctorConfig, DoctorConfigError, loadDoctorConfig } from './config.ts';
import { gatherFacts } from './facts.ts';
import { exitCode, type Finding } from './finding.ts';
import { type Host, thisHost } from './host.ts';
import { checkContainer, checkDevices, checkDriver, checkMode, checkRequirements, checkSocket } from './node-checks.ts';
import { checkClock, checkServices, checkTrial, probeServices } from './service-checks.ts';

// Looks at a node from the driver up to one verified attestation, each check in its own file, in the order of repair.

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

const USAGE = `countersign doctor [--json]   look at this node: driver, confidential mode, devices, services, clock, socket, one trial attestation

It reads the sidecar's variables: ATTESTER, SIDECAR_SOCKET, RIM_URL, OCSP_URL, NRAS_URL, NVTRUST_VENV, NVATTEST, NVML_LIBRARY.

exit status: 0 nothing fails, 1 something does, 2 usage`;

const status = await run(process.argv.slice(2));
// A driver call that hangs must not keep us.
process.stdout.write('', () => process.exit(status));

async function run(argv: readonly string[]): Promise<number> {
  try {
    const options = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const;
    // As `countersign doctor`, the command's own name comes first.
    const args = argv[0] === 'doctor' ? argv.slice(1) : [...argv];
    const { values } = parseArgs({ args, options, strict: true });
    if (values.help) {
      console.log(USAGE);
      return 0;
    }
    const config = loadDoctorConfig(process.env);
    const findings = await examine(thisHost(config.environment), config);
    const code = exitCode(findings);
    console.log(values.json ? JSON.stringify({ ok: code === 0, findings }, null, 2) : printFindings(findings));
    return code;
  } catch (error) {
    const isUsage = error instanceof TypeError && (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
    if (!isUsage && !(error instanceof DoctorConfigError)) throw error;
    console.error(`countersign: ${(error as Error).message}\nsee --help`);
    return 2;
  }
}

// The doctor's checks for the processor's evidence: configfs-tsm, or the TPM behind Azure's paravisor.

import { dirname, join } from 'node:path';
import type { CpuType } from '../../verify/cpu.ts';
import { AZURE_TPM, type SidecarConfig } from '../common/config.ts';
import { PROVIDERS } from '../cpu/cpu-collector.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import type { Host } from './host.ts';

// Is this a confidential VM, and may the sidecar get reports from its processor?

const NAME = 'cpu';
const MAKE_ENTRY =
  'as root: systemctl start countersign-tsm, or sidecar/cpu/tsm-entry.sh with the group of the sidecar';

export async function checkCpu(
  host: Host,
  config: SidecarConfig,
  container: string | null,
): Promise<{ readonly type: CpuType | null; readonly findings: readonly Finding[] }> {
  const { cpu_evidence, attester, tsm_entry } = config;
  const found = (finding: Finding, type: CpuType | null = null) => ({ type, findings: [finding] });
  if (attester === 'simulated') return found(skip(NAME, 'ATTESTER=simulated brings a processor of its own'));
  if (cpu_evidence === 'off') return found(skip(NAME, 'CPU_EVIDENCE=off: no processor signs'));
  const missing = (seen: string, todo: string) =>
    found(cpu_evidence === 'required' ? fail(NAME, seen, todo) : warn(NAME, `${seen}; answers go out without`, todo));
  if ((await host.kind(tsm_entry)) !== 'folder') {
    const parent = dirname(tsm_entry);
    if ((await host.kind(parent)) !== 'folder' && (await host.kind(AZURE_TPM)) === 'device')
      return found(await checkAzure(host, cpu_evidence === 'required'));
    if ((await host.kind(parent)) !== 'folder') return missing(...(await explainNoReports(host, parent, container)));
    if ((await host.access(parent, 'write')) !== null) return missing(`there is no ${tsm_entry}`, MAKE_ENTRY);
    return found(ok(NAME, `${host.user} can make an entry in ${parent}`));
  }
  const refused = await firstRefusal(host, tsm_entry);
  if (refused !== null) return missing(`${host.user} may not use ${refused}`, MAKE_ENTRY);
  const provider = (await host.readText(join(tsm_entry, 'provider')))?.trim() ?? '';
  const type = PROVIDERS[provider];
  if (type === undefined)
    return missing(
      `${tsm_entry} asks ${JSON.stringify(provider.slice(0, 64))}`,
      'SEV-SNP (sev_guest) or TDX (tdx_guest) is needed',
    );
  return found(
    ok(NAME, `${host.user} can ask a ${type === 'TDX' ? 'TDX' : 'SEV-SNP'} processor by ${tsm_entry}`),
    type,
  );
}

/** The first Linux with configfs-tsm. */
const FIRST_LINUX = [6, 7] as const;
const RELEASE = '/proc/sys/kernel/osrelease';
/** The devices that the processors' drivers make, each on its own processor. */
const GUEST_DEVICES = ['/dev/sev-guest', '/dev/tdx_guest'];

/** Why the folder of reports is missing, and what to do about it. */
async function explainNoReports(
  host: Host,
  reports: string,
  container: string | null,
): Promise<readonly [seen: string, todo: string]> {
  const release = (await host.readText(RELEASE))?.trim() ?? '';
  const [major = Number.NaN, minor = Number.NaN] = release.split('.').map((part) => Number.parseInt(part, 10));
  if (major < FIRST_LINUX[0] || (major === FIRST_LINUX[0] && minor < FIRST_LINUX[1]))
    return [`Linux ${release.slice(0, 64)} has no configfs-tsm`, 'give this machine Linux 6.7 or newer'];
  if (container !== null)
    return [
      `in ${container} there is no ${reports}`,
      "start it with compose.cpu.yaml, or in Kubernetes with the chart's value cpuEvidence.enabled; on the node: sidecar/cpu/tsm-entry.sh",
    ];
  for (const device of GUEST_DEVICES)
    if ((await host.kind(device)) === 'device')
      return [`there is ${device} and no ${reports}`, 'as root: mount -t configfs none /sys/kernel/config'];
  return [
    `there is no ${reports}, and no ${GUEST_DEVICES.join(', no ')}`,
    'start a confidential VM of SEV-SNP or TDX, and load its driver (modprobe sev-guest or tdx-guest)',
  ];
}

/** Behind Azure's paravisor there is a TPM in place of configfs-tsm. Only its report names the processor. */
async function checkAzure(host: Host, required: boolean): Promise<Finding> {
  const bad = required ? fail : warn;
  const reason = await host.access(AZURE_TPM, 'read_write');
  if (reason !== null)
    return bad(
      NAME,
      `${host.user} may not open ${AZURE_TPM} (${reason})`,
      `put ${host.user} into the group that owns it (tss)`,
    );
  if ((await host.run('tpm2_quote', ['--version'])) === null)
    return bad(NAME, `${AZURE_TPM} is there, and tpm2_quote cannot be run`, "install Debian's package tpm2-tools");
  return ok(NAME, `${host.user} can ask a processor behind Azure's paravisor by ${AZURE_TPM}`);
}

async function firstRefusal(host: Host, entry: string): Promise<string | null> {
  for (const [name, right] of [
    ['inblob', 'write_file'],
    ['outblob', 'read'],
    ['generation', 'read'],
    ['provider', 'read'],
  ] as const) {
    const reason = await host.access(join(entry, name), right);
    if (reason !== null) return `${join(entry, name)} (${reason})`;
  }
  return null;
}

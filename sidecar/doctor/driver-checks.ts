// The doctor's checks of NVIDIA's driver: its version, the GPUs that it sees, and what its session with them needs.
import { join } from 'node:path';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import type { Facts, Host } from './host.ts';

// Is there a driver, which one, and GPUs that can attest?

/** The first driver branch whose reports we have seen; 535 had them in its last releases. */
const FIRST_BRANCH = 535;
/** The branch of CUDA 13.0 (NVIDIA's R580 TRD1 release notes), for which vLLM builds its images from 0.20.0 on (its release notes). */
const CUDA_13_BRANCH = 580;

export function checkDriver({ driver, gpus, source, nvml_error }: Facts): Finding[] {
  if (driver === null)
    return [
      fail(
        'driver',
        `no NVIDIA driver is to be seen (${nvml_error ?? 'NVML names none'})`,
        "install NVIDIA's data-center driver and load it (modprobe nvidia); in a container, start it with --gpus all",
      ),
      skip('gpus', 'no driver'),
    ];
  return [version(driver, source), ...models(gpus, source)];
}

function version(driver: string, source: Facts['source']): Finding {
  const seen = `driver ${driver}, told by ${source}`;
  const branch = Number.parseInt(driver, 10);
  if (branch < FIRST_BRANCH) return fail('driver', seen, 'this driver cannot attest; install 580 or newer');
  if (branch < CUDA_13_BRANCH)
    return warn(
      'driver',
      `${seen}; the vLLM image of compose.yaml is built for CUDA 13, whose driver is 580`,
      'install 580 or newer, or name an image in VLLM_IMAGE that is built for the CUDA of this driver',
    );
  return ok('driver', seen);
}

function models(gpus: Facts['gpus'], source: Facts['source']): Finding[] {
  if (source === '/proc') return [warn('gpus', 'nothing here counts GPUs', 'install nvidia-smi, or koffi by npm ci')];
  if (gpus.length === 0) return [fail('gpus', 'the driver sees no GPU', 'look at nvidia-smi -L, lspci and dmesg')];
  const unable = gpus.filter(({ arch }) => arch === null);
  const seen = gpus.map(({ model, arch }) => `${model} (${arch ?? 'cannot attest'})`).join(', ');
  if (unable.length > 0)
    return [fail('gpus', seen, 'all GPUs of the machine must be Hopper or Blackwell data-center GPUs')];
  return [ok('gpus', seen)];
}

// Does the kernel have the cryptography that the driver needs for a session with a GPU in confidential mode (LKCA)?

const LKCA = 'lkca';
const ALGORITHMS = ['ecdsa-nist-p384', 'ecdh-nist-p384'];
const MODPROBE = '/etc/modprobe.d';
/** From Google's guide for confidential GPUs: one modprobe for each module, because a second name would be a parameter. */
const LINE = 'install nvidia /sbin/modprobe ecdsa_generic; /sbin/modprobe ecdh; /sbin/modprobe --ignore-install nvidia';

/** @param container its kind; null outside a container. A container has the node's kernel, and its own folder of modprobe. */
export async function checkLkca(
  host: Host,
  { driver, gpus, mode }: Facts,
  container: string | null,
): Promise<Finding[]> {
  const known = await host.readText('/proc/crypto');
  if (known === null) return [skip(LKCA, 'nothing here reads /proc/crypto')];
  const missing = ALGORITHMS.filter((name) => !new RegExp(`^name\\s*:\\s*${name}$`, 'm').test(known));
  if (missing.length === 0)
    return [ok(LKCA, `the kernel has ${ALGORITHMS.join(' and ')}, which confidential mode needs`)];
  const lacks = `the kernel has no ${missing.join(' and no ')}`;
  // Without a session the driver would see no GPU.
  if (gpus.length > 0 && (mode?.confidential || mode?.multi_gpu === 'protected_pcie'))
    return [skip(LKCA, `${lacks}, and the driver has its session with the GPU all the same`)];
  const seen = `${lacks}, which the driver needs in confidential mode`;
  const write = `as root: echo '${LINE}' > ${MODPROBE}/nvidia-lkca.conf && update-initramfs -u, then restart the machine`;
  if (container !== null)
    return [
      warn(LKCA, `${seen}; whether ${MODPROBE} loads it is to be seen only on the node`, `on the node, ${write}`),
    ];
  if (!(await loadsAlgorithms(host))) return [warn(LKCA, `${seen}, and nothing in ${MODPROBE} loads it before`, write)];
  if (driver === null) return [ok(LKCA, `${MODPROBE} loads ecdsa_generic and ecdh before the driver`)];
  return [
    warn(
      LKCA,
      `${seen}; ${MODPROBE} names it, and the driver was loaded without`,
      `as root: ${MODPROBE} has '${LINE}'? Then update-initramfs -u, and restart the machine`,
    ),
  ];
}

/** Reads the lines, because a file that exists may be empty. */
async function loadsAlgorithms(host: Host): Promise<boolean> {
  for (const name of (await host.list(MODPROBE)).filter((file) => file.endsWith('.conf'))) {
    const lines = ((await host.readText(join(MODPROBE, name))) ?? '').split('\n');
    if (lines.some((line) => /^\s*install\s+nvidia\s.*\becdsa_generic\b.*\becdh\b/.test(line))) return true;
  }
  return false;
}

// Does the driver keep its session with the GPU while nobody uses it?

export function checkPersistence({ driver, persistence }: Facts): Finding[] {
  const name = 'persistence';
  if (driver === null) return [skip(name, 'no driver')];
  if (persistence === null) return [skip(name, 'the driver does not say')];
  if (persistence) return [ok(name, 'persistence mode is on')];
  return [
    warn(
      name,
      'persistence mode is off: with the last user of a GPU its session ends, and in confidential mode no other begins without a reset',
      'systemctl enable --now nvidia-persistenced, with --uvm-persistence-mode in place of --no-persistence-mode in its unit; on the node, not in a container',
    ),
  ];
}

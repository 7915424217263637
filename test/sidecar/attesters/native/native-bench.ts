// The twin's parts as the native attester meets them: its stand-in for NVML, its RIM and OCSP services, its roots.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { withProduct } from '../../../../scripts/vectors/resign.ts';
import {
  DEVICE_ROOT,
  type Device,
  type Issuers,
  makeDevice,
  makeIssuers,
  makeRoot,
} from '../../../../sidecar/attesters/simulated/pki.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { type Faults, noFaults } from '../../../twin/faults.ts';
import { buildLibrary, buildSwitchLibrary, NSCQ_FILE, NVML_FILE, SOCKET_FILE } from '../../../twin/library.ts';
import { H100, type Model, NVSWITCH } from '../../../twin/models.ts';
import { startNvmlServer } from '../../../twin/nvml-server.ts';
import { makeRimSigner, RIM_ROOT, type RimSigner } from '../../../twin/rim-signer.ts';
import { startServices } from '../../../twin/services.ts';
import type { TwinOptions } from '../../../twin/twin.ts';

export interface Bench {
  readonly faults: Faults;
  readonly folder: Folder;
  /** For `createNativeAttester` and `createNrasAttester`. */
  readonly options: {
    readonly library: string;
    readonly switch_library: string;
    readonly parallel_calls: number;
    readonly cache_dir: string;
    readonly rim_url: string;
    readonly ocsp_url: string;
    readonly roots: { readonly device: string; readonly rim: string };
    readonly fetch: typeof globalThis.fetch;
    readonly warm: false;
  };
  counts(): { collected: number; rim: number; ocsp: number };
  close(): Promise<void>;
}

/** Why the tests over the stand-in for NVML cannot run here; null where they can. Said once, out loud. */
export const missing: string | null = missingPart();
if (missing !== null) console.warn(`SKIPPED: NVML through its stand-in: ${missing} is not there`);

function missingPart(): string | null {
  if (spawnSync('gcc', ['--version']).status !== 0) return 'gcc';
  try {
    createRequire(import.meta.url)('koffi');
    return null;
  } catch {
    return 'the npm package koffi';
  }
}

export interface EndorsementBench {
  readonly faults: Faults;
  /** Two devices under one root. */
  readonly device: Device;
  readonly other: Device;
  readonly options: Omit<Bench['options'], 'library' | 'switch_library' | 'parallel_calls' | 'cache_dir'>;
  served(): { rim: number; ocsp: number };
  close(): Promise<void>;
}

/** The services alone, without NVML: they need neither gcc nor koffi. */
export async function startEndorsements(): Promise<EndorsementBench> {
  const issuers = makeIssuers(makeRoot(DEVICE_ROOT));
  const [device, other] = [makeDevice(issuers), makeDevice(issuers)];
  const faults = noFaults();
  const { options, services } = await endorse([issuers], [device, other], faults, [H100]);
  return { faults, device, other, options, served: () => ({ ...services.served }), close: () => services.close() };
}

/** With switches, protected PCIe is on; `switch_library: false` leaves their driver's library out. */
export async function startBench(
  device_count = 1,
  { model = H100, switch_count = 0, switch_library = true }: TwinOptions & { readonly switch_library?: boolean } = {},
): Promise<Bench> {
  const folder = temporaryFolder();
  buildLibrary(folder.path);
  if (switch_count > 0 && switch_library) buildSwitchLibrary(folder.path);
  const faults = { ...noFaults(), protected_pcie: switch_count > 0 };
  const root = makeRoot(DEVICE_ROOT);
  const gpu = makeIssuers(root, model.chip);
  const nvswitch = makeIssuers(root, NVSWITCH.chip);
  const devices = Array.from({ length: device_count }, () => makeDevice(gpu));
  const switches = Array.from({ length: switch_count }, () => makeDevice(nvswitch));
  const nvml = await startNvmlServer(join(folder.path, SOCKET_FILE), { devices, model, switches }, faults);
  const { options, services } = await endorse([gpu, nvswitch], [...devices, ...switches], faults, [model, NVSWITCH]);
  return {
    faults,
    folder,
    options: {
      ...options,
      library: join(folder.path, NVML_FILE),
      switch_library: join(folder.path, NSCQ_FILE),
      parallel_calls: 3,
      cache_dir: join(folder.path, 'collateral'),
    },
    counts: () => ({ collected: nvml.collected, ...services.served }),
    async close() {
      await services.close();
      await nvml.close();
      folder.remove();
    },
  };
}

async function endorse(
  issuers: readonly [Issuers, ...Issuers[]],
  devices: readonly Device[],
  faults: Faults,
  models: readonly Model[],
) {
  const rim = makeRimSigner(makeRoot(RIM_ROOT));
  const services = await startServices({ issuers, devices, rim, models }, faults);
  const options: EndorsementBench['options'] = {
    rim_url: services.rim_url,
    ocsp_url: services.ocsp_url,
    roots: { device: issuers[0].root.certificate.pem, rim: rim.root.certificate.pem },
    fetch: twinFetch(services.ocsp_url, rim, faults),
    warm: false,
  };
  return { services, options };
}

/**
 * verify/ asks the responder without a slash at its end, and holds a Hopper's RIM to its product: the twin's says more, so it
 * is signed anew.
 */
function twinFetch(ocsp_url: string, signer: RimSigner, faults: Faults): typeof globalThis.fetch {
  return async (url, init) => {
    const response = await globalThis.fetch(String(url) === ocsp_url.slice(0, -1) ? ocsp_url : url, init);
    if (!String(url).includes('/v1/rim/') || !response.ok || faults.rim_broken_signature) return response;
    const body = (await response.json()) as { rim: string };
    const rim = withProduct(Buffer.from(body.rim, 'base64').toString(), signer);
    return Response.json({ ...body, rim: Buffer.from(rim).toString('base64') });
  };
}

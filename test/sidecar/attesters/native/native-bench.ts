// The twin's parts as the native attester meets them: its stand-in for NVML, its RIM and OCSP services, its roots.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../../../demo/twin/pki.ts';
import { withProduct } from '../../../../scripts/vectors/resign.ts';
import type { Folder } from '../../../support/harness.ts';
import { type Faults, noFaults } from '../../../twin/faults.ts';
import { NSCQ_FILE, NVML_FILE } from '../../../twin/library.ts';
import { type Machine, type MachineOptions, startMachine } from '../../../twin/machine.ts';
import { makeRimSigner, RIM_ROOT, type RimSigner } from '../../../twin/rim-signer.ts';
import { startServices } from '../../../twin/services.ts';

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
  const rim = makeRimSigner(makeRoot(RIM_ROOT));
  const roots = { device: issuers.root.certificate.pem, rim: rim.root.certificate.pem };
  const [device, other] = [makeDevice(issuers), makeDevice(issuers)];
  const faults = noFaults();
  const services = await startServices({ issuers: [issuers], devices: [device, other], rim }, faults);
  return {
    faults,
    device,
    other,
    options: optionsOf({ services, rim, roots, faults }),
    served: () => ({ ...services.served }),
    close: () => services.close(),
  };
}

export async function startBench(device_count = 1, options: MachineOptions = {}): Promise<Bench> {
  const machine = await startMachine(device_count, options);
  const { faults, folder, nvml, services, close } = machine;
  return {
    faults,
    folder,
    options: {
      ...optionsOf(machine),
      library: join(folder.path, NVML_FILE),
      switch_library: join(folder.path, NSCQ_FILE),
      parallel_calls: 3,
      cache_dir: join(folder.path, 'collateral'),
    },
    counts: () => ({ collected: nvml.collected, ...services.served }),
    close,
  };
}

function optionsOf({ services, rim, roots, faults }: Pick<Machine, 'services' | 'rim' | 'roots' | 'faults'>) {
  const fetch = twinFetch(services.ocsp_url, rim, faults);
  return { rim_url: services.rim_url, ocsp_url: services.ocsp_url, roots, fetch, warm: false } as const;
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

// Makes attestations of the twin, right or with one thing wrong.

import type { Device } from '../../demo/twin/pki.ts';
import type { RawParts } from '../../proto/attestation/raw.ts';
import { makeReport, type ReportOptions } from '../../test/twin/report.ts';
import { makeToken, type TokenOptions } from '../../test/twin/token.ts';
import { nonceHex, rawOf, WHOLE } from './exchange.ts';
import { AT, chainBase64, type World } from './world.ts';

export type Evidence = { arch: string; report: string; certificate_chain: string };
export type Attestation = { raw: string; nonce: string; token: string; evidence: Evidence[]; batch?: unknown };

export interface ForgeOptions {
  readonly parts?: RawParts;
  /** In place of what `parts` give. */
  readonly raw?: string;
  /** The member `batch` and the nonce beside it, in place of raw's. */
  readonly batch?: { readonly member: unknown; readonly nonce: string };
  readonly devices?: readonly Device[];
  /** The nonce that the device is given; raw's by default. */
  readonly reportNonce?: string;
  readonly report?: ReportOptions;
  readonly token?: TokenOptions;
  /** The nonce that the token names; raw's by default. */
  readonly tokenNonce?: string;
  readonly now?: Date;
}

export async function forge(world: World, options: ForgeOptions = {}): Promise<Attestation> {
  const raw = options.raw ?? rawOf(options.parts ?? WHOLE);
  const { nonce = nonceHex(raw), member } = options.batch ?? {};
  const devices = options.devices ?? [world.a];
  const report = options.report ?? {};
  const claims = {
    ...(report.driverVersion === undefined ? {} : { 'x-nvidia-gpu-driver-version': report.driverVersion }),
    ...(report.vbiosVersion === undefined ? {} : { 'x-nvidia-gpu-vbios-version': report.vbiosVersion }),
    ...options.token?.claims,
  };
  return {
    raw,
    nonce,
    token: makeToken(options.tokenNonce ?? nonce, devices, options.now ?? AT, { ...options.token, claims }),
    evidence: await Promise.all(devices.map((device) => evidenceOf(device, options.reportNonce ?? nonce, report))),
    ...(options.batch === undefined ? {} : { batch: member }),
  };
}

export async function evidenceOf(device: Device, nonce: string, options: ReportOptions = {}): Promise<Evidence> {
  const report = await makeReport(Buffer.from(nonce, 'hex'), device.key, options);
  return { arch: 'HOPPER', report: report.toString('base64'), certificate_chain: chainBase64(device) };
}

/** In NVIDIA's own form. */
export const bare = (evidence: Evidence, nonce: string) => ({
  arch: evidence.arch,
  certificate: evidence.certificate_chain,
  evidence: evidence.report,
  nonce,
});

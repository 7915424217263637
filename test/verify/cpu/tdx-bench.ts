// Evidence of TDX that is right except for what a test names, and what is said of it.

import { pem } from '../../../demo/twin/authority.ts';
import {
  type CollateralSpec,
  makeCollateral,
  makeIntel,
  makePck,
  makeQuote,
  type PckSpec,
  type QuoteSpec,
} from '../../../demo/twin/tdx.ts';
import type { CpuVerifyOptions, TdxCollateral } from '../../../verify/cpu/cpu-options.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { failures } from './verdict.ts';

export const AT = new Date('2026-06-01T00:00:00Z');
export const intel = makeIntel();
export const other = makeIntel();
export const ROOTS = { intel: pem(intel.root) };

export interface Parts {
  readonly pck?: PckSpec;
  readonly quote?: QuoteSpec;
  readonly collateral?: CollateralSpec | null;
  readonly tamper?: (quote: Buffer) => Buffer | undefined;
  readonly edit?: (collateral: TdxCollateral) => TdxCollateral;
  readonly log?: Buffer;
  readonly options?: CpuVerifyOptions;
}

export async function judge(parts: Parts) {
  const made = makeQuote(intel, makePck(intel, parts.pck), parts.quote);
  const quote = parts.tamper?.(made) ?? made;
  const collateral = parts.collateral === null ? undefined : makeCollateral(intel, parts.collateral);
  const member = {
    type: 'TDX',
    report: quote.toString('base64'),
    ...(collateral === undefined ? {} : { collateral: parts.edit?.(collateral) ?? collateral }),
    ...(parts.log === undefined ? {} : { event_log: parts.log.toString('base64') }),
  };
  return appraiseCpu(JSON.stringify(member), { at: AT, roots: ROOTS, ...parts.options });
}

export const refuse = async (parts: Parts) => failures(await judge(parts));
export const stateOf = async (parts: Parts) => (await judge(parts)).claims?.tcb_status;
export const xor = (at: number) => (bytes: Buffer) => {
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  return bytes;
};
export const put = (at: number, ...bytes: readonly number[]) => ({
  editBody: (body: Buffer) => {
    body.set(bytes, at);
  },
});

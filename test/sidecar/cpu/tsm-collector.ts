// The collector of configfs-tsm over the kernel of fake-tsm.ts, as its tests start it, and what they look for.
import { expect } from 'vitest';
import { TSM_ENTRY } from '../../../sidecar/common/config.ts';
import { createTsmCollector } from '../../../sidecar/cpu/tsm.ts';
import type { FakeTsm } from './fake-tsm.ts';

type TsmEvidence = Parameters<Parameters<typeof createTsmCollector>[0]['endorse']>[0];

export const NEVER = new AbortController().signal;
export const GENERATION = 'read countersign/generation';
export const PROVIDER = 'read countersign/provider';
/** One undisturbed report over the kept entry. */
export const STEPS = ['write countersign/inblob', 'read countersign/outblob', 'read countersign/auxblob', GENERATION];

export const bytes = (fill: number) => new Uint8Array(64).fill(fill);
export const dataIn = (report: string) => Buffer.from(report, 'base64').subarray(0x50, 0x90);
export const reason = (of: string, words = /./) => ({
  name: 'AttesterError',
  reason: of,
  message: expect.stringMatching(words),
});

type Options = Partial<Parameters<typeof createTsmCollector>[0]>;

/** A collector over this kernel, the evidence that it asked endorsements for, and a report over 64 equal bytes. */
export async function start(fake: FakeTsm, options: Options = {}) {
  const endorsed: TsmEvidence[] = [];
  const collector = await createTsmCollector({
    entry: TSM_ENTRY,
    fs: fake.fs,
    async endorse(evidence) {
      endorsed.push(evidence);
      return { certificates: 'given' };
    },
    ...options,
  });
  return { collector, endorsed, collect: (fill: number, signal = NEVER) => collector.collect(bytes(fill), signal) };
}

/** A promise that a test keeps. */
export function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Lets everything happen that waits for no gate. */
export const settled = () => new Promise((resolve) => setTimeout(resolve, 20));

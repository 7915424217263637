// What the simulated GPU's signature costs, so that the attested rows can be read without it: a GPU signs by itself.
import { join } from 'node:path';
import type { SignerCalls } from '../programs/signer.ts';
import { remote } from '../system/calls.ts';
import { startNode, stop } from '../system/process.ts';
import type { Figure } from './figure.ts';

const TIMEOUT_MS = 60_000;

export const signing: Figure = {
  name: 'signing',
  once: true,
  title: (plan) => `Inside the sidecar, alone in a process, ${plan.signatures} of each`,
  columns: [{ key: 'cpu', title: 'CPU µs', digits: 0 }],
  async round({ where, plan }) {
    const child = startNode('bench/programs/signer.ts', { channel: true });
    try {
      const signer = remote<SignerCalls>(child, 'signer', TIMEOUT_MS);
      const { sign_us, check_us } = await signer.measure(join(where.folder, 'simulated-root'), plan.signatures);
      return [
        { name: 'the twin signs (a GPU would)', values: { cpu: sign_us }, wrong: null },
        { name: 'the sidecar checks it', values: { cpu: check_us }, wrong: null },
      ];
    } catch (error) {
      return [{ name: 'signing', values: {}, wrong: (error as Error).message }];
    } finally {
      await stop(child);
    }
  },
};

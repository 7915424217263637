// Compact forms of whole attestations: a second implementation of docs/attestation.md §9, with nothing of the gateway's.
import { hash } from 'node:crypto';
import { createBundles } from '../../verify/index.ts';

export interface Compact {
  readonly attestation: Record<string, unknown>;
  /** The bundle's text. */
  readonly bundle: string;
}

export const sha256 = (text: string): string => hash('sha256', text);

/** @param shares whether token and evidence go to the bundle, as in a batch; the session goes there always */
export function compactOf(whole: object, shares = true): Compact {
  const { token, evidence, cpu, ...rest } = whole as Record<string, unknown>;
  const { signature, ...session } = (cpu ?? {}) as Record<string, unknown>;
  const members = { ...(shares ? { token, evidence } : {}), ...(cpu === undefined ? {} : { cpu: session }) };
  const bundle = JSON.stringify(members);
  const short = { statement_sha256: sha256(String(session.statement)), signature };
  const attestation = {
    ...rest,
    ...(shares ? {} : { token, evidence }),
    ...(cpu === undefined ? {} : { cpu: short }),
    bundle: sha256(bundle),
  };
  return { attestation, bundle };
}

/** Serves `text` under whatever hash is asked for. */
export const serving = (text: string | null) => createBundles({ load: async () => text });

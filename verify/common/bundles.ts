// Keeps bundles, which compact attestations name by their SHA-256 (docs/attestation.md §9): their exact texts, a bounded number of them.
import { sha256Hex } from '../../proto/attestation/raw.ts';
import { CheckFailure } from './checks.ts';
import { readLimited } from './limited.ts';

/** A bundle is one object as long as it is kept. */
export interface Bundle {
  readonly text: string;
}

/** A source of bundles, which it keeps: the least recently used are dropped first. */
export interface Bundles {
  /** Keeps a bundle's exact text, such as that of a saved file. @returns its SHA-256 in hex. @throws {CheckFailure} bundle_malformed */
  add(text: string): Promise<string>;
  /** null: it is unavailable. Calls at the same time share one `load`. @throws {CheckFailure} bundle_mismatch, bundle_malformed */
  find(sha256: string): Promise<Bundle | null>;
}

export interface BundlesOptions {
  /** Gets a bundle by its SHA-256, as from `GET /v1/attestation/bundles/{sha256}`; null, or an error: it is unavailable. */
  readonly load?: ((sha256: string) => Promise<string | null>) | undefined;
}

const MAX_BUNDLES = 64;
/** A bundle of 64 devices is shorter; one of a GPU has 24,000. */
export const MAX_BUNDLE_CHARACTERS = 2 * 1024 * 1024;
const MAX_CHARACTERS = 16 * 1024 * 1024;
const TIMEOUT_MS = 30_000;

/**
 * Asks a service for a bundle, once, for at most 30 s.
 * @param baseUrl with `/v1`, as clients are given it.
 * @returns its text, unchecked; null where the service does not have it.
 */
export async function fetchBundle(
  baseUrl: string,
  sha256: string,
  { fetch = globalThis.fetch, ...init }: RequestInit & { readonly fetch?: typeof globalThis.fetch } = {},
): Promise<string | null> {
  const url = `${baseUrl.replace(/\/+$/, '')}/attestation/bundles/${sha256}`;
  const response = await fetch(url, { ...init, method: 'GET', body: null, signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status !== 200) return null;
  const bytes = await readLimited(response, MAX_BUNDLE_CHARACTERS);
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
}

export function createBundles({ load }: BundlesOptions = {}): Bundles {
  const kept = new Map<string, Bundle>();
  const loading = new Map<string, Promise<Bundle | null>>();
  let characters = 0;

  function keep(sha256: string, bundle: Bundle): Bundle {
    if (!kept.delete(sha256)) characters += bundle.text.length;
    kept.set(sha256, bundle);
    for (const [oldest, { text }] of kept) {
      if (kept.size <= MAX_BUNDLES && characters <= MAX_CHARACTERS) break;
      kept.delete(oldest);
      characters -= text.length;
    }
    return bundle;
  }

  function checkLength(text: string): void {
    if (text.length > MAX_BUNDLE_CHARACTERS)
      throw new CheckFailure('bundle_malformed', `it has more than ${MAX_BUNDLE_CHARACTERS} characters`);
  }

  /** Only a text with this hash is kept, whoever serves it. */
  async function loaded(sha256: string): Promise<Bundle | null> {
    const text = (await load?.(sha256).catch(() => null)) ?? null;
    if (text === null) return null;
    checkLength(text);
    if ((await sha256Hex(text)) !== sha256)
      throw new CheckFailure('bundle_mismatch', 'what is served for the bundle has another SHA-256');
    return keep(sha256, { text });
  }

  return {
    async add(text) {
      checkLength(text);
      const sha256 = await sha256Hex(text);
      keep(sha256, kept.get(sha256) ?? { text });
      return sha256;
    },
    async find(sha256) {
      const known = kept.get(sha256);
      if (known !== undefined) return keep(sha256, known);
      const running = loading.get(sha256) ?? loaded(sha256).finally(() => loading.delete(sha256));
      loading.set(sha256, running);
      return running;
    },
  };
}

// The names of the models that the backend lists. Only these become labels of metrics, or stand in a log: a request may name any text.
import type { Backend, Backends, Headers } from './backend.ts';
import { collect, modelsIn } from './probe.ts';

/** A name that is not in the list may be new, so the list is read again, but not more often than this. */
const READ_MS = 10_000;
const LIMITS = { max_bytes: 4 * 1024 * 1024, timeout_ms: 5_000 };
const MAX_NAMES = 10_000;
const MAX_NAME = 128;

export interface ModelNames {
  has(name: string): boolean;
}

interface ModelNamesOptions {
  /** null: there is one backend. */
  readonly backends: Pick<Backends, 'models'> | null;
  readonly backend: Pick<Backend, 'call'>;
  readonly backend_api_key: string | null;
}

export function createModelNames({ backends, backend, backend_api_key }: ModelNamesOptions): ModelNames {
  let names: ReadonlySet<string> = new Set();
  let read_ms = 0;

  async function list(): Promise<readonly string[]> {
    if (backends !== null) return (await backends.models()).map(({ id }) => id);
    const headers: Headers = { accept: 'application/json', 'accept-encoding': 'identity' };
    if (backend_api_key !== null) headers.authorization = `Bearer ${backend_api_key}`;
    const { body } = await collect(backend, { path: '/models', headers, body: null }, LIMITS);
    return ((body === null ? null : modelsIn(body)) ?? []).map(({ id }) => id);
  }

  function read(): void {
    read_ms = performance.now();
    list()
      .then((ids) => {
        if (ids.length > 0) names = new Set(ids.filter(({ length }) => length <= MAX_NAME).slice(0, MAX_NAMES));
      })
      // The names from before stay.
      .catch(() => {});
  }

  read();
  return {
    has(name) {
      const known = names.has(name);
      if (!known && performance.now() - read_ms > READ_MS) read();
      return known;
    },
  };
}

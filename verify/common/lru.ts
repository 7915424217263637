// What is kept: what was computed of an object, as long as the object lives, and a map of limited size that drops its least recently used entry
// when it is full. It is not npm's lru-cache because the verifier is a library, also for browsers, whose only dependency is hpke (beside
// optional peers for LangChain and the AI SDK).

/** The same function, which computes the value of each object once: for what depends on nothing else, neither time nor policy. */
export function once<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const made = new WeakMap<K, V>();
  return (key) => {
    const value = made.get(key) ?? make(key);
    made.set(key, value);
    return value;
  };
}

export class LruMap<K, V> {
  readonly #limit: number;
  readonly #map = new Map<K, V>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(key: K): V | undefined {
    const value = this.#map.get(key);
    if (value === undefined) return undefined;
    this.#map.delete(key);
    this.#map.set(key, value);
    return value;
  }

  set(key: K, value: V): void {
    this.#map.delete(key);
    this.#map.set(key, value);
    if (this.#map.size <= this.#limit) return;
    for (const oldest of this.#map.keys()) {
      this.#map.delete(oldest);
      return;
    }
  }

  delete(key: K): void {
    this.#map.delete(key);
  }
}

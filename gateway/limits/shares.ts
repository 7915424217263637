// Shares a limited amount, such as memory for bodies, fairly. When it is exhausted, a share of the owner with the most is evicted.
import { Problem } from '../base/problem.ts';

/** The share of one request. */
export class Share {
  /** Called when the share is evicted; its amount has been released by then. null: this share cannot be evicted. */
  onEvict: (() => void) | null;
  readonly #shares: Shares;
  readonly #owner: string;
  #amount = 0;

  constructor(shares: Shares, owner: string, onEvict: () => void) {
    this.onEvict = onEvict;
    this.#shares = shares;
    this.#owner = owner;
  }

  get amount(): number {
    return this.#amount;
  }

  /** @throws {Problem} overloaded when nothing is left and no other owner would have more than this one. */
  acquire(amount: number): void {
    while (!this.#shares.has(amount)) {
      const other = this.#shares.findEvictable(this.#owner, amount);
      other.release();
      other.onEvict?.();
    }
    this.#shares.count(this.#owner, this, amount);
    this.#amount += amount;
  }

  /** Releases all but `amount`. */
  shrinkTo(amount: number): void {
    const less = Math.max(0, this.#amount - amount);
    this.#amount -= less;
    this.#shares.count(this.#owner, this, -less);
  }

  release(): void {
    this.shrinkTo(0);
  }
}

export class Shares {
  readonly #max: number;
  readonly #owners = new Map<string, { readonly shares: Set<Share>; amount: number }>();
  #used = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Opens an empty share for `owner`. */
  open(owner: string, onEvict: () => void): Share {
    return new Share(this, owner, onEvict);
  }

  has(amount: number): boolean {
    return this.#used + amount <= this.#max;
  }

  count(owner: string, share: Share, by: number): void {
    if (by === 0) return;
    const entry = this.#owners.get(owner) ?? { shares: new Set(), amount: 0 };
    entry.amount += by;
    this.#used += by;
    if (by > 0) entry.shares.add(share);
    else if (share.amount === 0) entry.shares.delete(share);
    if (entry.amount > 0) this.#owners.set(owner, entry);
    else this.#owners.delete(owner);
  }

  /** Returns the latest share of the owner with the most. @throws {Problem} overloaded unless that is more than `owner` would have. */
  findEvictable(owner: string, amount: number): Share {
    let most = (this.#owners.get(owner)?.amount ?? 0) + amount;
    let found: Share | undefined;
    for (const other of this.#owners.values()) {
      if (other.amount <= most) continue;
      const latest = [...other.shares].findLast(({ onEvict }) => onEvict !== null);
      if (latest === undefined) continue;
      most = other.amount;
      found = latest;
    }
    if (found !== undefined) return found;
    throw new Problem('overloaded', 'There is no room for this now.', { retryAfterSeconds: 1 });
  }
}

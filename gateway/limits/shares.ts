// Something of which there is a bounded amount, such as memory for bodies, shared fairly: where it is not enough, whoever has most gives way.
import { Problem } from '../http/problem.ts';

/** What one request has of it. */
export class Share {
  /** Called when another owner needs the room: what was taken has been given back. null: this share does not give way. */
  giveWay: (() => void) | null;
  readonly #shares: Shares;
  readonly #owner: string;
  #amount = 0;

  constructor(shares: Shares, owner: string, giveWay: () => void) {
    this.giveWay = giveWay;
    this.#shares = shares;
    this.#owner = owner;
  }

  get amount(): number {
    return this.#amount;
  }

  /** @throws {Problem} overloaded when there is no room, and no owner who has more than this one would then have. */
  take(amount: number): void {
    while (!this.#shares.has(amount)) {
      const other = this.#shares.yielding(this.#owner, amount);
      other.leave();
      other.giveWay?.();
    }
    this.#shares.count(this.#owner, this, amount);
    this.#amount += amount;
  }

  /** Gives back all but `amount`. */
  keep(amount: number): void {
    const less = Math.max(0, this.#amount - amount);
    this.#amount -= less;
    this.#shares.count(this.#owner, this, -less);
  }

  leave(): void {
    this.keep(0);
  }
}

export class Shares {
  readonly #max: number;
  readonly #owners = new Map<string, { readonly shares: Set<Share>; amount: number }>();
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** A share of `owner`'s, with nothing in it yet. */
  enter(owner: string, giveWay: () => void): Share {
    return new Share(this, owner, giveWay);
  }

  has(amount: number): boolean {
    return this.#taken + amount <= this.#max;
  }

  count(owner: string, share: Share, by: number): void {
    if (by === 0) return;
    const own = this.#owners.get(owner) ?? { shares: new Set(), amount: 0 };
    own.amount += by;
    this.#taken += by;
    if (by > 0) own.shares.add(share);
    else if (share.amount === 0) own.shares.delete(share);
    if (own.amount > 0) this.#owners.set(owner, own);
    else this.#owners.delete(owner);
  }

  /** The latest share of the owner who has most. @throws {Problem} overloaded unless that is more than `owner` would have. */
  yielding(owner: string, amount: number): Share {
    let most = (this.#owners.get(owner)?.amount ?? 0) + amount;
    let found: Share | undefined;
    for (const other of this.#owners.values()) {
      if (other.amount <= most) continue;
      const latest = [...other.shares].findLast(({ giveWay }) => giveWay !== null);
      if (latest === undefined) continue;
      most = other.amount;
      found = latest;
    }
    if (found !== undefined) return found;
    throw new Problem('overloaded', 'There is no room for this now.', { retryAfterSeconds: 1 });
  }
}

// A fleet of nodes as a discrete-event model: answers arrive at random times, each node's GPU signs, and an answer waits for its proof.

/** What one signature may cover (the sidecar's own limit on a batch). */
export const MOST_IN_A_BATCH = 4_096;

export interface Fleet {
  readonly nodes: number;
  /** How long a GPU takes for a signature: always the same, and each node signs one thing at a time. */
  readonly collection_s: number;
  /** Off: each answer has a signature of its own. On: all that wait at a node, up to {@link MOST_IN_A_BATCH}, share its next one. */
  readonly batch: boolean;
  /**
   * By turns, or to a node that has the fewest answers waiting or being signed, both as if answers came to be signed in the order in
   * which they were routed. They take different times to generate, so that a GPU meets them nearly at random, whatever a router does.
   */
  readonly routing: (typeof ROUTINGS)[number];
}

export const ROUTINGS = ['random', 'round-robin', 'least-queue'] as const;

export interface Watch {
  /** The next answer's distance from the one before, in seconds. */
  readonly next_s: () => number;
  /** From 0 up to 1, for `random`. */
  readonly random: () => number;
  /** Answers that arrive before this time are not counted: the fleet begins empty. */
  readonly from_s: number;
  /** No answer arrives later. Those that are there then are signed. */
  readonly until_s: number;
}

export interface Outcome {
  /** Answers that were proven between `from_s` and `until_s`, a second; of a signature that reaches beyond, its share. */
  readonly throughput: number;
  /** Of the counted answers, from their arrival to their proof. A sample of them, where they are many. */
  readonly waits_s: readonly number[];
  readonly mean_s: number;
  /** The share of the counted time that the GPUs were signing. */
  readonly utilisation: number;
  /** Answers for a signature. */
  readonly per_signature: number;
}

const MOST_WAITS = 500_000;

export function simulate(
  { nodes, collection_s, batch, routing }: Fleet,
  { next_s, random, from_s, until_s }: Watch,
): Outcome {
  /** Of each node: when its answers came, those that are being signed first; where they begin; how many are being signed. */
  const came: number[][] = Array.from({ length: nodes }, () => []);
  const head = new Int32Array(nodes);
  const signing = new Int32Array(nodes);
  const route = routeOf(routing, nodes, random);
  // Every signature takes as long as every other, so that they end in the order in which they began.
  const ends = queue();
  const found = { proven: 0, signatures: 0, counted: 0, sum_s: 0 };
  const waits_s: number[] = [];
  let keep_every = 1;

  const begin = (node: number, at_s: number) => {
    const waiting = (came[node] as number[]).length - (head[node] as number);
    const count = batch ? Math.min(waiting, MOST_IN_A_BATCH) : 1;
    signing[node] = count;
    ends.push(node, at_s + collection_s);
    const watched_s = Math.min(at_s + collection_s, until_s) - Math.max(at_s, from_s);
    found.signatures += Math.max(0, watched_s) / collection_s;
    found.proven += (count * Math.max(0, watched_s)) / collection_s;
  };
  const end = () => {
    const at_s = ends.first_s();
    const node = ends.shift();
    const [times, first, count] = [came[node] as number[], head[node] as number, signing[node] as number];
    for (const time of times.slice(first, first + count)) if (time >= from_s) keep(at_s - time);
    signing[node] = 0;
    head[node] = first + count;
    route.left(node, count);
    if (head[node] === times.length) {
      times.length = 0;
      head[node] = 0;
    } else begin(node, at_s);
  };
  const keep = (wait_s: number) => {
    found.sum_s += wait_s;
    if (found.counted++ % keep_every !== 0) return;
    waits_s.push(wait_s);
    if (waits_s.length < MOST_WAITS) return;
    // Every second one is as good a sample.
    for (let i = 0; i < MOST_WAITS / 2; i++) waits_s[i] = waits_s[2 * i] as number;
    waits_s.length = MOST_WAITS / 2;
    keep_every *= 2;
  };

  for (let now_s = next_s(); now_s < until_s; now_s += next_s()) {
    while (ends.first_s() <= now_s) end();
    const node = route.next();
    (came[node] as number[]).push(now_s);
    if (signing[node] === 0) begin(node, now_s);
  }
  while (ends.first_s() < Number.POSITIVE_INFINITY) end();
  const { proven, signatures, counted, sum_s } = found;
  return {
    throughput: proven / (until_s - from_s),
    waits_s,
    mean_s: sum_s / counted,
    utilisation: (signatures * collection_s) / (nodes * (until_s - from_s)),
    per_signature: proven / signatures,
  };
}

interface Route {
  /** The node that the next answer goes to. */
  next(): number;
  /** So many answers of this node are proven. */
  left(node: number, count: number): void;
}

function routeOf(routing: Fleet['routing'], nodes: number, random: () => number): Route {
  if (routing === 'least-queue') return leastQueue(nodes);
  if (routing === 'round-robin') return inTurn(nodes);
  return { next: () => Math.floor(random() * nodes), left() {} };
}

function inTurn(nodes: number): Route {
  let turn = -1;
  return {
    next() {
      turn = (turn + 1) % nodes;
      return turn;
    },
    left() {},
  };
}

/** Nodes by how many answers they have, so that a node with the fewest is at hand without a search. */
function leastQueue(nodes: number): Route {
  const answers = new Int32Array(nodes);
  const place = Int32Array.from({ length: nodes }, (_, node) => node);
  const having: number[][] = [Array.from({ length: nodes }, (_, node) => node)];
  let fewest = 0;
  const move = (node: number, to: number) => {
    const from = having[answers[node] as number] as number[];
    const last = from.pop() as number;
    if (last !== node) {
      from[place[node] as number] = last;
      place[last] = place[node] as number;
    }
    while (having.length <= to) having.push([]);
    place[node] = (having[to] as number[]).push(node) - 1;
    answers[node] = to;
    fewest = Math.min(fewest, to);
  };
  return {
    next() {
      while ((having[fewest] as number[]).length === 0) fewest++;
      const node = (having[fewest] as number[]).at(-1) as number;
      move(node, fewest + 1);
      return node;
    },
    left: (node, count) => move(node, (answers[node] as number) - count),
  };
}

/** Ends of signatures, first in first out. */
function queue() {
  let [nodes, times, head]: [number[], number[], number] = [[], [], 0];
  return {
    push(node: number, at_s: number) {
      nodes.push(node);
      times.push(at_s);
    },
    first_s: () => times[head] ?? Number.POSITIVE_INFINITY,
    shift() {
      const node = nodes[head] as number;
      head++;
      if (head > 4_096 && head > nodes.length / 2) [nodes, times, head] = [nodes.slice(head), times.slice(head), 0];
      return node;
    },
  };
}

/** Arrivals at random times (Poisson), `rate` a second, and at random nodes: the same for the same seed. */
export function poisson(rate: number, seed: number): Pick<Watch, 'next_s' | 'random'> {
  const times = mulberry32(seed);
  return { next_s: () => -Math.log(1 - times()) / rate, random: mulberry32(seed ^ 0x5bd1e995) };
}

/** Numbers from 0 up to 1: Tommy Ettinger's mulberry32. */
function mulberry32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

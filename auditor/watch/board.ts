// What the history says of each node, entry by entry: its state, how often it missed, the devices that are known, what changed.
import { LEVELS, type Level } from '../../verify/index.ts';
import type { Link } from './history.ts';
import type { Node } from './nodes.ts';
import type { Outcome, Probed } from './probe.ts';

export const STATES = ['good', 'failed', 'away', 'unchecked'] as const;
export type State = (typeof STATES)[number];

/** An entry about a node, as it is in the history. */
export interface NodeEntry extends Omit<Probed, 'received'> {
  readonly node: string;
  readonly state: State;
  readonly demanded: Level;
  /** Rounds without a proof, this one included, since the last with one. */
  readonly misses: number;
  /** Of `devices`: those that the node did not have in its first proof, and nodes.json does not list. */
  readonly new_devices: readonly string[];
  /** What needs somebody, though it is proven: sentences. */
  readonly warnings: readonly string[];
  /** Paths in the folder; each file is named by its SHA-256. */
  readonly proofs: readonly string[];
}

export type Kept = NodeEntry & Link;

/** What is known of a node. */
export interface Standing {
  last: Kept | null;
  /** The last with a proof. */
  proven: Kept | null;
  /** Since when it is in its state. */
  since: Kept | null;
  misses: number;
  known: Set<string>;
  readonly recent: Kept[];
}

/** Entries of one node that the page shows as a strip. */
const MAX_RECENT = 48;
/** Entries at which something changed, newest last. */
const MAX_CHANGES = 50;
const DAY_MS = 86_400_000;
/** How long before its end an endorsement is warned of. */
const ENDS_SOON_MS = 14 * DAY_MS;
/** A processor's collateral is renewed for about a month. */
const COLLATERAL_ENDS_SOON_MS = 3 * DAY_MS;

/** An entry at which a node's state, or what is to be warned of, changed. */
export interface Change {
  readonly entry: Kept;
  readonly was: State | null;
}

export interface Board {
  readonly standings: ReadonlyMap<string, Standing>;
  readonly changes: readonly Change[];
  /** Takes an entry of the history in; those that are about no node are passed over. @returns the change, where there is one */
  take(entry: Link & object): Change | null;
}

export function createBoard(): Board {
  const standings = new Map<string, Standing>();
  const changes: Change[] = [];
  return {
    standings,
    changes,
    take(entry) {
      if (!isAboutNode(entry)) return null;
      const standing = standings.get(entry.node) ?? newStanding();
      standings.set(entry.node, standing);
      const { last } = standing;
      const isNew = last?.state !== entry.state || last.code !== entry.code || !sameTexts(last, entry);
      if (last?.state !== entry.state) standing.since = entry;
      if (entry.outcome === 'proven') standing.proven = entry;
      standing.misses = entry.misses;
      for (const device of entry.devices ?? []) if (!entry.new_devices.includes(device)) standing.known.add(device);
      standing.last = entry;
      standing.recent.push(entry);
      if (standing.recent.length > MAX_RECENT) standing.recent.shift();
      if (!isNew) return null;
      const change = { entry, was: last?.state ?? null };
      changes.push(change);
      if (changes.length > MAX_CHANGES) changes.shift();
      return change;
    },
  };
}

const newStanding = (): Standing => ({
  last: null,
  proven: null,
  since: null,
  misses: 0,
  known: new Set(),
  recent: [],
});
const isAboutNode = (entry: Link & { readonly node?: unknown }): entry is Kept => typeof entry.node === 'string';

const sameTexts = (a: Kept, b: Kept): boolean => a.warnings.join('\n') === b.warnings.join('\n');

/** What the history will say of a node that was probed. @param standing null: there is no entry yet */
export function judge(
  node: Node,
  { received: _, ...probed }: Probed,
  standing: Standing | null,
  misses_allowed: number,
  at: Date,
): Omit<NodeEntry, 'proofs'> {
  const known = node.devices ?? (standing === null || standing.known.size === 0 ? null : [...standing.known]);
  const new_devices = known === null ? [] : (probed.devices ?? []).filter((device) => !known.includes(device));
  const missed = probed.outcome === 'away' || probed.outcome === 'unchecked';
  const misses = missed ? (standing?.misses ?? 0) + 1 : 0;
  const refused = probed.outcome === 'proven' ? refusalOf(node, probed, new_devices) : null;
  const isTooOften = missed && misses >= misses_allowed;
  const state: State = refused !== null || isTooOften ? 'failed' : stateOf(probed.outcome);
  return {
    node: node.name,
    state,
    ...probed,
    ...(refused ?? {}),
    ...(isTooOften ? { reason: `No proof in ${misses} rounds in a row. ${probed.reason}` } : {}),
    demanded: node.level,
    misses,
    new_devices,
    warnings: refused === null ? warningsOf(probed, new_devices, at) : [],
  };
}

const stateOf = (outcome: Outcome): State => (outcome === 'proven' ? 'good' : outcome);

type Seen = Omit<Probed, 'received'>;

/** Why a proof that verifies is not enough; null: it is. */
function refusalOf(
  node: Node,
  { level, canary }: Seen,
  new_devices: readonly string[],
): { readonly code: string; readonly reason: string } | null {
  if (LEVELS.indexOf(level ?? 'none') < LEVELS.indexOf(node.level))
    return { code: 'level_too_low', reason: `Its proof is of level ${level}, and ${node.level} is demanded.` };
  if (node.devices !== null && new_devices.length > 0)
    return { code: 'device_not_accepted', reason: `A device signed that is not on the list (${short(new_devices)}).` };
  if (canary === 'wrong')
    return { code: 'canary_wrong', reason: 'By its own word its model answers with nonsense (its canary is wrong).' };
  return null;
}

function warningsOf(probed: Seen, new_devices: readonly string[], at: Date): string[] {
  const { ends, drivers_unknown, drivers, release } = probed;
  const soon = (end: string | null | undefined, margin_ms: number) =>
    end != null && Date.parse(end) - at.getTime() < margin_ms;
  return [
    ...(new_devices.length > 0 ? [`A device signed that was never seen before (${short(new_devices)}).`] : []),
    ...(release?.current != null && release.current !== release.tag
      ? [`It runs release ${release.tag}, and ${release.current} is current.`]
      : []),
    ...(soon(ends?.certificates, ENDS_SOON_MS) ? [`A certificate ends on ${ends?.certificates?.slice(0, 10)}.`] : []),
    ...(soon(ends?.collateral, COLLATERAL_ENDS_SOON_MS)
      ? [`The processor's collateral ends on ${ends?.collateral?.slice(0, 10)}.`]
      : []),
    ...(drivers_unknown ?? [])
      .filter((driver) => !drivers.includes(driver))
      .map((driver) => `NVIDIA has no reference values for driver ${driver} yet: with it, nothing would be proven.`),
  ];
}

const short = (devices: readonly string[]): string => devices.map((one) => `${one.slice(0, 12)}…`).join(', ');

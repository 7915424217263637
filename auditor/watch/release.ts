// The signed release of a node, from the node itself or from GitHub, asked for once an hour.
import type { Arguments } from '../../verify/cli/args.ts';
import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import type { Node, Nodes } from './nodes.ts';

const KEPT_MS = 3_600_000;

/** @throws {UsageError} for a trusted root that cannot be used. */
export async function releaseSearch(
  args: Pick<Arguments, 'offline' | 'collateral'>,
  { nodes, trusted_root }: Nodes,
): Promise<(node: Node) => Promise<ReleaseOptions | null>> {
  const named = nodes.find(({ release }) => release !== null)?.release;
  if (named == null) return async () => null;
  const { releaseOptions } = await import('../../verify/cli/release-source.ts');
  const given = { ...(args as Arguments), trustedRoot: trusted_root };
  // Reads the root.
  await releaseOptions({ ...given, release: named, gateway: null, offline: true, collateral: null }, () => {});
  const kept = new Map<string, { readonly found: ReleaseOptions | null; readonly until_ms: number }>();
  return async ({ name, url, release }) => {
    if (release === null) return null;
    const before = kept.get(name);
    if (before !== undefined && Date.now() < before.until_ms) return before.found;
    const found = await releaseOptions({ ...given, release, gateway: url }, () => {});
    if (found?.bundle != null) kept.set(name, { found, until_ms: Date.now() + KEPT_MS });
    return found;
  };
}

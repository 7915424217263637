// Everything that can be measured, in the order of the tables.
import { ROOT } from '../system/process.ts';
import { litellm, portkey } from './others.ts';
import { beforeKinds, oursKinds } from './ours.ts';
import { direct, haproxy, nginx, pipe } from './plain.ts';
import type { TargetKind } from './target.ts';

/** `before`: another checkout of this repository, which is measured beside this one. */
export function targetsWith(before: string | null): readonly TargetKind[] {
  const all = [direct, nginx, haproxy, pipe, portkey, litellm, ...oursKinds(ROOT)];
  return before === null ? all : [...all, ...beforeKinds(before)];
}

// Everything that can be measured, in the order of the tables.
import { litellm, portkey } from './others.ts';
import { ours, oursTee, oursTee50, oursTeeSnp, oursTeeTdx, oursTeeUnchecked, oursTeeUnsigned } from './ours.ts';
import { direct, haproxy, nginx, pipe } from './plain.ts';
import type { TargetKind } from './target.ts';

export const TARGETS: readonly TargetKind[] = [
  direct,
  nginx,
  haproxy,
  pipe,
  portkey,
  litellm,
  ours,
  oursTeeUnchecked,
  oursTeeUnsigned,
  oursTee,
  oursTeeSnp,
  oursTeeTdx,
  oursTee50,
];

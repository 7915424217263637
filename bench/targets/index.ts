// Everything that can be measured, in the order of the tables.
import { litellm, portkey } from './others.ts';
import {
  ours,
  oursEveryCore,
  oursTee,
  oursTee50,
  oursTeeSnp,
  oursTeeTdx,
  oursTeeUnchecked,
  oursTeeUnsigned,
  oursTwoWorkers,
} from './ours.ts';
import { direct, haproxy, nginx, nginxTwoWorkers, pipe } from './plain.ts';
import type { TargetKind } from './target.ts';

export const TARGETS: readonly TargetKind[] = [
  direct,
  nginx,
  nginxTwoWorkers,
  haproxy,
  pipe,
  portkey,
  litellm,
  ours,
  oursTwoWorkers,
  oursEveryCore,
  oursTeeUnchecked,
  oursTeeUnsigned,
  oursTee,
  oursTeeSnp,
  oursTeeTdx,
  oursTee50,
];

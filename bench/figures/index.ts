// Every figure, in the order of the report.
import { cancel } from './cancel.ts';
import type { Figure } from './figure.ts';
import { latency, latencyWarm } from './latency.ts';
import { memory } from './memory.ts';
import { sidecar } from './sidecar.ts';
import { signing } from './signing.ts';
import { stall } from './stall.ts';
import { paced, responses, saturation } from './streams.ts';
import { verifications } from './verifications.ts';
import { whole1k, whole16k } from './whole.ts';

export const FIGURES: readonly Figure[] = [
  whole1k,
  whole16k,
  latency,
  latencyWarm,
  paced,
  responses,
  saturation,
  memory,
  cancel,
  sidecar,
  stall,
  signing,
  verifications,
];

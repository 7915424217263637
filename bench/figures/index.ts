// Every figure, in the order of the report. Where a run would be too long, those that come last lose their last round.
import type { Figure } from './figure.ts';
import { latency } from './latency.ts';
import { memory } from './memory.ts';
import { paced } from './paced.ts';
import { whole1k, whole16k, whole128k } from './whole.ts';

export const FIGURES: readonly Figure[] = [whole1k, whole16k, latency, paced, memory, whole128k];

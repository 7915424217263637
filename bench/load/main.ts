// The load generator's process: does one job at a time for main.

import type { LoadCalls } from '../jobs.ts';
import { serveCalls } from '../system/calls.ts';
import { closed } from './closed.ts';
import { hold, release } from './hold.ts';
import { open } from './open.ts';
import { paced } from './paced.ts';
import { serial } from './serial.ts';

const calls: LoadCalls = { closed, open, serial, paced, hold, release };
serveCalls(calls);

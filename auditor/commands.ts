// The commands of this room, which the command line has beside those of verify/cli/.
import type { OwnCommand } from '../verify/cli/args.ts';
import { REPLAY } from './replay.ts';

export const AUDITOR: readonly OwnCommand[] = [REPLAY];

// The commands of this room, which the command line has beside those of verify/cli/.
import type { OwnCommand } from '../verify/cli/args.ts';
import { AUDIT } from './audit/command.ts';
import { REPLAY } from './replay.ts';
import { SECRETS } from './secrets.ts';
import { TRANSCRIPT } from './transcript/command.ts';
import { WATCH } from './watch/watch.ts';
import { WEIGHTS } from './weights/command.ts';

export const AUDITOR: readonly OwnCommand[] = [AUDIT, REPLAY, SECRETS, TRANSCRIPT, WATCH, WEIGHTS];

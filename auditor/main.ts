#!/usr/bin/env node
// The program `countersign`: the commands of verify/cli/ and of this room.
import { main } from '../verify/cli/main.ts';
import { AUDITOR } from './commands.ts';

process.exitCode = await main(process.argv.slice(2), AUDITOR);

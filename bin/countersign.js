#!/usr/bin/env node
// The installed command: TypeScript is loaded as it is.
import { register } from 'tsx/esm/api';

register();
await import(process.argv[2] === 'doctor' ? '../sidecar/doctor/main.ts' : '../verify/cli/main.ts');

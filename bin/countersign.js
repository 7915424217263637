#!/usr/bin/env node
// The installed command: TypeScript is loaded as it is.
import { register } from 'tsx/esm/api';

register();
await import('../verify/cli/main.ts');

#!/usr/bin/env node
// The command: TypeScript is loaded as it is, by Node itself. Those of the service stand here, the others in the npm package too.
if (!process.features.typescript) {
  console.error(`countersign: Node ${process.versions.node} cannot load TypeScript; use 22.18 or newer`);
  process.exit(2);
}
const commands = new Map([
  ['doctor', '../sidecar/doctor/main.ts'],
  ['keys', '../gateway/keys/cli.ts'],
  ['audit-log', '../gateway/usage/audit-cli.ts'],
]);
await import(commands.get(process.argv[2]) ?? '../auditor/main.ts');

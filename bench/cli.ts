// `npm run bench`: every proxy side by side; `npm run bench verify`: the verifier; `npm run bench telemetry`: what watching a request costs; `npm run bench sealed`: what sealing one costs;
// `npm run bench -- --fleet`: a model of many nodes.
const OTHERS: Readonly<Record<string, string>> = {
  verify: './verify/main.ts',
  telemetry: './programs/telemetry.ts',
  sealed: './programs/sealed.ts',
};

const args = process.argv.slice(2);
if (args.includes('--fleet')) (await import('./fleet/main.ts')).runFleet(args);
else await import(OTHERS[args[0] ?? ''] ?? './main.ts');

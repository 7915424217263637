// `npm run bench`: every proxy side by side; `npm run bench verify`: the verifier; `npm run bench telemetry`: what watching a request costs.
const OTHERS: Readonly<Record<string, string>> = { verify: './verify/main.ts', telemetry: './telemetry.ts' };

await import(OTHERS[process.argv[2] ?? ''] ?? './main.ts');

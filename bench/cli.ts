// `npm run bench`: every proxy side by side; `npm run bench verify`: the verifier; `npm run bench -- --fleet`: a model of many nodes.

const args = process.argv.slice(2);
if (args.includes('--fleet')) (await import('./fleet/main.ts')).runFleet(args);
else await import(args[0] === 'verify' ? './verify/main.ts' : './main.ts');

// What `npm start` runs. Its first line comes at once: the launcher, which takes longer to load, is imported after it.
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Nothing runs yet. */
const leave = () => process.exit(0);

for (const signal of SIGNALS) process.on(signal, leave);
const args = process.argv.slice(2);
if (args.every((arg) => arg === '--model'))
  console.log('Countersign: the whole service on this machine, in a few seconds');
const { launch } = await import('./launcher.ts');
const launched = launch(args, process.env);
// From here on the launcher has handlers of its own.
for (const signal of SIGNALS) process.off(signal, leave);
await launched;

export {};

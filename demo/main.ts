// What `npm start` runs. Its first line comes at once: the launcher, which takes longer to load, is imported after it.
import { OptionError, readDemoOptions } from './options.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Nothing runs yet. */
const leave = () => process.exit(0);

for (const signal of SIGNALS) process.on(signal, leave);
const options = optionsOf(process.argv.slice(2));
console.log('Countersign: the whole service on this machine, in a few seconds');
const { launch } = await import('./launcher.ts');
const launched = launch(options, process.env);
// From here on the launcher has handlers of its own.
for (const signal of SIGNALS) process.off(signal, leave);
await launched;

function optionsOf(args: readonly string[]) {
  try {
    return readDemoOptions(args);
  } catch (error) {
    if (!(error instanceof OptionError)) throw error;
    console.error(`countersign: ${error.message}`);
    process.exit(1);
  }
}

// Preloaded into a process: at SIGUSR2 an error that nobody catches quotes a text, as an engine's own errors do.
import { readFileSync } from 'node:fs';

const file = process.env.CRASH_TEXT_FILE ?? '';
process.on('SIGUSR2', () => {
  const text = readFileSync(file, 'utf8');
  setImmediate(() => {
    if (text.startsWith('{')) throw new Error(`in the middle of ${text}\n    at ${text}`);
    JSON.parse(text);
  });
});

// Does the demo engine serve? Asks it for its models: exit 0 for an answer, or 1.
import { loadConfig } from './config.ts';

const TIMEOUT_MS = 8_000;

const { port } = loadConfig(process.env);
const response = await fetch(`http://127.0.0.1:${port}/v1/models`, { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(
  () => null,
);
process.exit(response?.ok ? 0 : 1);

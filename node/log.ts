// Formats a JSON log line for a terminal. Both processes write JSON everywhere else.

const LEVELS: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};
/** ANSI colours: yellow for warnings, red for errors, none for other levels. */
const paint = (level: number, text: string) =>
  level >= 50 ? `\u001b[31m${text}\u001b[0m` : level >= 40 ? `\u001b[33m${text}\u001b[0m` : text;
const dim = (text: string) => `\u001b[2m${text}\u001b[0m`;

/** Returns `14:03:07.123 info  gateway listening port=8080`. Any other text is returned unchanged. Times are UTC. */
export function prettyLine(json: string): string {
  let line: Record<string, unknown>;
  try {
    line = JSON.parse(json);
  } catch {
    return json;
  }
  const { level, time, name, msg, pid: _pid, hostname: _hostname, ...rest } = line;
  if (typeof level !== 'number' || typeof time !== 'number') return json;
  const clock = new Date(time).toISOString().slice(11, 23);
  const word = (LEVELS[level] ?? String(level)).padEnd(5);
  const fields = Object.entries(rest).map(([key, value]) => `${dim(`${key}=`)}${show(value)}`);
  return `${[dim(clock), paint(level, word), name, msg, ...fields].filter((part) => part !== undefined).join(' ')}\n`;
}

function show(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:*@+-]+$/.test(value)) return value;
  return JSON.stringify(value);
}

// The location of an error, for the log. Its message is left out, because it may quote a prompt or raw.

/** Returns name, code and stack frames. The message is removed first, because one of its lines could look like a frame. */
export function where(thrown: unknown): { name: string; code?: string; at: string[] } {
  if (!(thrown instanceof Error)) return { name: typeof thrown, at: [] };
  const code = (thrown as { code?: unknown }).code;
  const stack = thrown.stack ?? '';
  const after = stack.indexOf(thrown.message);
  const frames = thrown.message === '' || after < 0 ? stack : stack.slice(after + thrown.message.length);
  const at = frames
    .split('\n')
    .filter((line) => /^\s{1,8}at /.test(line))
    .slice(0, 8)
    .map((line) => line.trim());
  return { name: thrown.name, ...(typeof code === 'string' ? { code } : {}), at };
}

// Where an error happened, for the log: never its message, which may quote a prompt or raw.

/** Name, code and the stack's frames. The message is cut out first: a line of it could look like a frame. */
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

// Long work in short turns: between two of them the event loop serves everyone else.

/** @throws the signal's reason, once it is aborted */
export async function breathe(signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await new Promise((resolve) => setImmediate(resolve));
  signal.throwIfAborted();
}

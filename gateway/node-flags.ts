// How Node is started for the gateway. `package.json`, the image and the systemd unit say the same; a test compares them.

export const NODE_FLAGS = [
  // What V8 may take is a part of what the gateway says it needs (gateway/limits/memory.ts), and not a part of the machine.
  '--max-old-space-size=320',
  // A smaller young generation: less memory for each open stream.
  '--max-semi-space-size=16',
  // Node's own code on pages of 2 MiB: a quarter of a request's processor time was misses of small ones.
  // `silent`: where the kernel gives none (transparent_hugepage=never), nothing changes.
  '--use-largepages=silent',
  // V8 guesses from long streams what lives long, and then has the same code put its objects among the old ones at once.
  // There, dead ones keep alive what they refer to until the next full collection, and with it nearly every request since.
  '--no-allocation-site-pretenuring',
  // In a quiet minute V8 cleans up, and drops shapes of objects that nobody has just then, and with them the compiled code that
  // knows them: the first seconds after a pause cost up to three times as much. Dead objects are still collected as ever.
  '--no-memory-reducer',
] as const;

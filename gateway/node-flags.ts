// The flags with which Node runs the gateway. `package.json`, the image and the systemd unit have the same; a test compares them.

export const NODE_FLAGS = [
  // V8's heap is a part of the memory that the gateway says it needs (gateway/limits/memory.ts), and not a part of the machine's.
  '--max-old-space-size=320',
  // A smaller young generation takes less memory for each open stream.
  '--max-semi-space-size=16',
  // Node's own code lies on pages of 2 MiB: misses of small pages were a quarter of a request's processor time.
  // `silent`: nothing changes where the kernel has no such pages (transparent_hugepage=never).
  '--use-largepages=silent',
  // From long streams V8 learns which objects live long, and then puts all objects of the same code into the old generation at once. Dead
  // ones there keep alive what they refer to until the next full collection, and with it nearly every request since.
  '--no-allocation-site-pretenuring',
  // In a quiet minute V8 drops shapes of objects that are not in use, and with them the compiled code that depends on them: the first
  // seconds after a pause cost up to three times as much. Dead objects are still collected as before.
  '--no-memory-reducer',
  // ML-KEM in WebCrypto, with which sealed requests are opened, is experimental in Node 24: each process would say so in about seven lines
  // between those of the log.
  '--disable-warning=ExperimentalWarning',
] as const;

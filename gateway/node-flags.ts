// The flags with which Node runs the gateway. `package.json`, the image and the systemd unit have the same; a test compares them.

export const NODE_FLAGS = [
  // gateway/limits/memory.ts counts this heap. By default V8 derives its size from the machine's memory.
  '--max-old-space-size=320',
  // A young generation of this size takes the least memory for each open stream: 8 and 32 take more.
  '--max-semi-space-size=16',
  // Puts Node's own code on pages of 2 MiB: TLB misses on small pages took a quarter of a request's CPU time.
  // `silent`: nothing changes where the kernel has no such pages (transparent_hugepage=never).
  '--use-largepages=silent',
  // V8 learns from long streams which objects live long, and then allocates all objects of the same code in the old generation. There, dead
  // objects keep the objects they refer to, nearly every request since, alive until the next full collection.
  '--no-allocation-site-pretenuring',
  // While idle, V8 drops unused object shapes and the compiled code that depends on them: the first seconds after a pause cost up to three
  // times as much. Dead objects are still collected as before.
  '--no-memory-reducer',
  // ML-KEM in WebCrypto, which opens sealed requests, is experimental in Node 24: each process would print about seven lines of warnings
  // into the log.
  '--disable-warning=ExperimentalWarning',
] as const;

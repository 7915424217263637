// Loaded into a gateway that may collect its garbage: what it still holds after that, as a line, when it is asked by a signal.
process.on('SIGUSR2', () => {
  globalThis.gc?.();
  // Buffers are given back by a thread of their own.
  setTimeout(() => {
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    console.log(JSON.stringify({ msg: 'memory', bytes: heapUsed + external }));
  }, 50);
});

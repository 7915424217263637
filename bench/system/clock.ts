// The clock that all processes of a run share: CLOCK_MONOTONIC, the same in every process of a machine.

/** Microseconds since the machine's start. */
export function now_us(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + nanoseconds / 1e3;
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

// What the environment may say of a run: the one place of the fault suite that reads it.

/** `FAULT_REQUESTS=10000`: tee requests while the sidecar is restarted every two seconds. */
export const REQUESTS = {
  asked: process.env.FAULT_REQUESTS !== undefined,
  number: Number(process.env.FAULT_REQUESTS ?? 2_000),
};

/** `FAULT_STREAMS=500`: streams that are open at once. */
export const STREAMS = Number(process.env.FAULT_STREAMS ?? 2_000);

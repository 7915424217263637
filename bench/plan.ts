// How much is measured: sizes and times of every figure. Quick takes about two minutes, the full run eleven, on two cores.

export interface Plan {
  readonly rounds: number;
  /** A second or third round of a figure is measured only if it ends within this, from the run's beginning. */
  readonly budget_ms: number;
  /** Before the first round, for each target and each kind of answer: compilers get warm, pools fill. */
  readonly warm_step_ms: number;
  /** Steps of each, at most: a target is warm when its cost for an answer has stopped falling. */
  readonly warm_steps: number;
  readonly warm_ms: number;
  /** One measurement of throughput. */
  readonly closed_ms: number;
  readonly concurrency: number;
  readonly low_ms: number;
  readonly low_rate: number;
  readonly paced_ms: number;
  readonly paced_streams: number;
  readonly paced_rate: number;
  readonly idle_streams: number;
  readonly idle_settle_ms: number;
}

export const FULL: Plan = {
  rounds: 3,
  budget_ms: 690_000,
  warm_step_ms: 700,
  warm_steps: 10,
  warm_ms: 600,
  closed_ms: 1_400,
  concurrency: 64,
  low_ms: 2_500,
  low_rate: 100,
  paced_ms: 2_000,
  paced_streams: 200,
  paced_rate: 100,
  idle_streams: 3_000,
  idle_settle_ms: 1_500,
};

export const QUICK: Plan = {
  ...FULL,
  rounds: 1,
  warm_step_ms: 500,
  warm_steps: 6,
  warm_ms: 300,
  closed_ms: 500,
  low_ms: 1_000,
  paced_ms: 1_000,
  paced_streams: 100,
  idle_streams: 500,
  idle_settle_ms: 700,
};

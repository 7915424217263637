// What main asks of the load generator, and what it gets back.
import type { Scene } from './scene.ts';

/** Whom to ask, and how an answer must look. */
export interface Aim {
  readonly port: number;
  /** Header lines that this target needs, each with its CRLF. */
  readonly headers: string;
  readonly tee: boolean;
  /** With tee: the answer may share a signature. */
  readonly batch?: boolean;
  /** The backend's bytes must come through; a gateway that rewrites them is checked by what they say. */
  readonly exact: boolean;
}

/** Processes whose CPU is read at the beginning and the end of what is measured. */
export interface Watch {
  readonly proxy: readonly number[];
  readonly sidecar: readonly number[];
  /** The bench's own: main, load generator, backend. */
  readonly bench: readonly number[];
}

export interface Cost {
  readonly elapsed_us: number;
  readonly proxy_us: number;
  readonly sidecar_us: number;
  /** CPU of everybody else on the machine, other targets included: what disturbed the measurement. */
  readonly foreign_us: number;
}

export interface Judged {
  /** How many answers were wrong. */
  readonly wrong: number;
  /** The first of them. */
  readonly reason: string | null;
}

export interface ClosedJob {
  readonly aim: Aim;
  readonly scene: Scene;
  readonly concurrency: number;
  readonly warm_ms: number;
  readonly duration_ms: number;
  readonly watch: Watch;
}
export interface ClosedResult extends Judged {
  readonly cost: Cost;
  readonly answers: number;
  readonly chunks: number;
}

export interface OpenJob {
  readonly aim: Aim;
  readonly scene: Scene;
  readonly rate: number;
  readonly duration_ms: number;
  /** `poisson`: at random times, so many a second on average. On a clock by default. */
  readonly arrivals?: 'clock' | 'poisson' | undefined;
  /** Whose CPU is counted, from the first request to the last answer. */
  readonly watch?: Watch;
}
export interface OpenResult extends Judged {
  readonly latency_us: readonly number[];
  /** null where nobody was watched. */
  readonly cost: Cost | null;
}

export interface SerialJob {
  readonly aim: Aim;
  readonly scene: Scene & { readonly kind: 'whole' };
  readonly count: number;
}

export interface PacedJob {
  readonly aim: Aim;
  readonly streams: number;
  readonly rate: number;
  readonly duration_ms: number;
  readonly watch: Watch;
}
export interface PacedResult extends Judged {
  readonly cost: Cost;
  /** Chunks that arrived while CPU was counted. */
  readonly chunks: number;
  /** Of streams on connections that had served one before. */
  readonly ttft_us: readonly number[];
  /** Of the first on each. */
  readonly ttft_new_us: readonly number[];
  readonly age_p50_us: number;
  readonly age_p99_us: number;
}

export interface HoldJob {
  readonly aim: Aim;
  readonly streams: number;
}

export interface LoadCalls {
  closed(job: ClosedJob): Promise<ClosedResult>;
  open(job: OpenJob): Promise<OpenResult>;
  serial(job: SerialJob): Promise<OpenResult>;
  paced(job: PacedJob): Promise<PacedResult>;
  /** Opens streams and keeps them; each has had its first chunk when this returns. */
  hold(job: HoldJob): Promise<Judged>;
  /** Leaves all that are held. */
  release(): Promise<void>;
}

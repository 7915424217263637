// While an answer is under way: the line under it, and a watch that ends it when the sidecar is away.
import { announce, el } from '../base/dom.ts';
import { GatewayError, type Service } from '../base/gateway.ts';

const SECOND_MS = 1_000;

/** The line under an answer: it waits for the first word, words come, or the GPU is signing. */
interface Progress {
  readonly element: HTMLElement;
  /** Whether nothing comes that could be read meanwhile. */
  readonly waits: boolean;
  words(): void;
  signing(): void;
  end(): void;
}

export function createProgress(): Progress {
  const element = el('p', { class: 'note' }, 'Waiting for the first word …');
  let waits = true;
  let last_ms = performance.now();
  let timer: ReturnType<typeof setInterval> | undefined;
  function count(): void {
    element.textContent = `The GPU is signing … ${Math.round((performance.now() - last_ms) / SECOND_MS)} s`;
  }
  return {
    element,
    get waits() {
      return waits;
    },
    words() {
      if (timer !== undefined) return;
      waits = false;
      last_ms = performance.now();
      element.textContent = 'Not proven yet: the GPU signs when the answer has ended.';
    },
    signing() {
      if (timer !== undefined) return;
      waits = true;
      timer = setInterval(count, SECOND_MS);
      count();
      announce('The GPU is signing.');
    },
    end() {
      clearInterval(timer);
      element.remove();
    },
  };
}

/** The reason for which a watch ended an answer. */
const AWAY = new GatewayError(0, 'attestation_unavailable', 'The part that speaks to the GPU is away.');

interface Watch {
  readonly signal: AbortSignal;
  /** What ended the answer; null while the sidecar is there. */
  readonly ended: GatewayError | null;
  stop(): void;
}

/** Asks the service at once, then every second in which an answer waits. The signal ends the answer when the sidecar is away. */
export function watchSidecar(
  progress: Pick<Progress, 'waits'>,
  refresh: () => Promise<void>,
  service: () => Service | null,
): Watch {
  const ending = new AbortController();
  let stopped = false;
  async function look(): Promise<void> {
    await refresh();
    const status = service()?.sidecar.status ?? 'connected';
    if (!stopped && progress.waits && status !== 'connected') ending.abort(AWAY);
  }
  const timer = setInterval(() => {
    if (progress.waits) void look();
  }, SECOND_MS);
  void look();
  return {
    signal: ending.signal,
    get ended() {
      return ending.signal.aborted ? AWAY : null;
    },
    stop() {
      stopped = true;
      clearInterval(timer);
    },
  };
}

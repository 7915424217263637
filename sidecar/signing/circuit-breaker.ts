// The circuit: opens on trouble that waiting does not cure (CC mode off, driver gone), says what it is, and tries again by itself.
import { AttesterError } from '../attesters/attester.ts';

/** Why nothing can be attested now. For operators and for the error that clients see: words, no content. */
export interface Trouble {
  readonly code: AttesterError['code'];
  readonly message: string;
}

export interface CircuitOptions {
  /** One attestation over a nonce of our own, to learn whether the trouble is over. @throws {AttesterError} */
  readonly trial: () => Promise<void>;
  /** From one trial to the next while there is trouble. */
  readonly trial_every_ms: number;
  readonly onChange: (trouble: Trouble | null) => void;
}

export interface Circuit {
  readonly trouble: Trouble | null;
  succeeded(): void;
  failed(error: AttesterError): void;
  /** A request's whole time went by, and nothing was attested in it; `why`, where the attester said. */
  late(why: AttesterError | null): void;
  /** Trouble for certain, whether it may pass or not. */
  open(error: AttesterError): void;
  close(): void;
}

/** One wrong appraisal may be one report's, and one late answer chance; so many in a row are the device's. */
const IN_A_ROW = 3;

export const noAnswer = () => new AttesterError('collection_failed', 'the attester does not answer', false);

export function createCircuit(options: CircuitOptions): Circuit {
  let trouble: Trouble | null = null;
  let appraisals = 0;
  let late = 0;
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  function become(next: Trouble | null): void {
    if (next?.message === trouble?.message && next?.code === trouble?.code) return;
    trouble = next;
    options.onChange(next);
    if (next !== null) schedule();
  }

  function open(error: AttesterError): void {
    become({ code: error.code, message: error.message.slice(0, 512) });
  }

  function schedule(): void {
    if (timer !== null || closed) return;
    timer = setTimeout(() => {
      timer = null;
      // A trial that fails reports itself, and the next one is scheduled here.
      void options
        .trial()
        .catch(() => {})
        .finally(() => trouble !== null && schedule());
    }, options.trial_every_ms);
    timer.unref();
  }

  return {
    get trouble() {
      return trouble;
    },
    succeeded() {
      appraisals = 0;
      late = 0;
      become(null);
    },
    failed(error) {
      if (error.retryable) return;
      if (error.code === 'appraisal_failed' && ++appraisals < IN_A_ROW) return;
      open(error);
    },
    late(why) {
      if (++late >= IN_A_ROW && trouble === null) open(why ?? noAnswer());
    },
    open,
    close() {
      closed = true;
      clearTimeout(timer ?? undefined);
    },
  };
}

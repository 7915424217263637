// The verifier is open to everybody: what it may take of memory and of threads is bounded, and shared fairly by address.
import type { Asker } from '../aside/line.ts';
import type { Room } from '../body.ts';
import { MANY_BYTES } from '../gathering.ts';
import type { Share } from '../limits/shares.ts';
import { createPermits, type Permits } from '../permits.ts';
import type { Outgoing } from '../wire/answer.ts';
import type { Job, Verdict } from './job.ts';
import { Lane } from './lane.ts';

export interface Verifier {
  /** For one request, before its body is read. @param address as addressOf has it */
  enter(address: string, outgoing: Outgoing): Guest;
  close(): Promise<void>;
}

/** One request's body and its verification. */
export interface Guest extends Room {
  /** @throws {Problem} overloaded when too many wait, or it was not done in time. @throws {ClientGone} */
  appraise(job: Job): Promise<Verdict>;
  /** Gives back what it held, once it is answered. */
  leave(): void;
}

export interface VerifierOptions {
  readonly rim_url: string;
  readonly ocsp_url: string;
  readonly max_verify_bytes: number;
  readonly max_verify_concurrent: number;
  readonly verify_timeout_ms: number;
  /** Among which `max_verify_concurrent` and the memory for bodies are divided. */
  readonly workers: number;
}

const MiB = 1024 * 1024;
/** A few verifications overlap, for some wait for NVIDIA's services, and at most so many of one address. */
const QUICK_IN_FLIGHT = 8;
const QUICK_PER_ADDRESS = 2;
const QUICK_HEAP_MB = 96;
/** A body with more of these, be it in its strings, takes longer to read than the keys of a few devices take to check. */
const QUICK_MARKS = 10_000;
/** Of others one is verified at a time, of all workers together. Meanwhile so many bodies of the largest size are read or wait. */
const SLOW_BODIES = 4;
/** Room is kept for the rest of a body for so long after each part of it. */
const IDLE_MS = 1_000;

/** What a process may take at most: of bodies, and by its two threads. A thread's own code and stacks are near 16 MiB. */
export function verifierBounds({ workers, ...options }: Omit<VerifierOptions, 'rim_url' | 'ocsp_url'>) {
  const share = (total: number) => Math.ceil(total / workers);
  const max_waiting = share(options.max_verify_concurrent);
  return {
    max_waiting,
    quick_bytes: (max_waiting + QUICK_IN_FLIGHT) * MANY_BYTES,
    slow_bytes: Math.max(options.max_verify_bytes, share(SLOW_BODIES * options.max_verify_bytes)),
    quick_heap_mb: QUICK_HEAP_MB,
    // What MAX_JSON_VALUES are at their worst, and copies of the text.
    slow_heap_mb: 192 + Math.ceil((6 * options.max_verify_bytes) / MiB),
  };
}

/** For slow verifications; shared by all workers, under this name, where they can share it. */
export const SLOW_PERMITS = 'verifications';
export const slowPermits = ({ max_verify_concurrent }: Pick<VerifierOptions, 'max_verify_concurrent'>) => ({
  max_permits: 1,
  max_waiting: max_verify_concurrent,
});

/** What is verified quickly has a thread of its own: nothing that takes long makes it wait. */
export function createVerifier(
  options: VerifierOptions,
  permits: Permits = createPermits(slowPermits(options)),
): Verifier {
  const { rim_url, ocsp_url, verify_timeout_ms } = options;
  const { max_waiting, quick_bytes, slow_bytes, quick_heap_mb, slow_heap_mb } = verifierBounds(options);
  const worker = { rim_url, ocsp_url, verify_timeout_ms };
  const quick = new Lane({
    worker,
    max_heap_mb: quick_heap_mb,
    max_bytes: quick_bytes,
    permits: createPermits({ max_permits: QUICK_IN_FLIGHT, max_waiting }),
    per_address: { max_permits: QUICK_PER_ADDRESS, max_waiting },
    ends_after_each: false,
  });
  const slow = new Lane({
    worker,
    max_heap_mb: slow_heap_mb,
    max_bytes: slow_bytes,
    permits,
    per_address: { max_permits: 1, max_waiting },
    ends_after_each: true,
  });

  return {
    enter(address, outgoing) {
      const asker: Asker = { owner: address, outgoing };
      // A client that is still sending has nothing to lose but its connection.
      const giveWay = () => outgoing.destroy();
      let lane = quick;
      let share: Share = quick.shares.enter(address, giveWay);
      let here_bytes = 0;
      /** Gives back what was taken for a part of the body that does not come. */
      let idle: NodeJS.Timeout | undefined;
      const slowly = (bytes: number) => {
        share.leave();
        lane = slow;
        share = slow.shares.enter(address, giveWay);
        share.take(bytes);
      };
      return {
        hold(bytes, coming) {
          here_bytes += bytes;
          if (lane === quick && here_bytes + coming > MANY_BYTES) {
            // For all that is announced: it is not read half, and then refused.
            slowly(here_bytes + coming);
            if (coming > 0) idle = setTimeout(() => share.keep(here_bytes), IDLE_MS).unref();
          }
          share.take(Math.max(0, here_bytes - share.amount));
          idle?.refresh();
        },
        // Its place in the queue is asked for when it is appraised.
        whole: () => clearTimeout(idle),
        async appraise(job) {
          if (lane === quick && !hasFewMarks(job.body)) slowly(here_bytes);
          return lane.run(asker, job, share);
        },
        leave() {
          clearTimeout(idle);
          share.leave();
        },
      };
    },
    close: async () => void (await Promise.all([quick.close(), slow.close()])),
  };
}

/** What JSON is made of, wherever it stands: raw is JSON in a string. */
function hasFewMarks(body: Uint8Array): boolean {
  let marks = 0;
  for (const byte of body) if (byte === COMMA || byte === COLON || byte === BRACKET || byte === BRACE) marks++;
  return marks <= QUICK_MARKS;
}
const [COMMA, COLON, BRACKET, BRACE] = [0x2c, 0x3a, 0x5b, 0x7b];

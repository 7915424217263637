// One exchange: the request as the client sent it, what it asked for, and the response that its answer goes into.
import type { IncomingHttpHeaders } from 'node:http';
import type { Outgoing } from '../http/plain-path/response.ts';
import type { Problem } from '../http/problem.ts';
import type { Owner } from '../keys/caller.ts';
import type { Watch } from '../telemetry/watch.ts';

export interface Exchange {
  /** Unguessable; x-request-id and, with tee, x-attestation-id. */
  readonly id: string;
  readonly owner: Owner;
  /** The client's body, exactly as received, as text or bytes; without tee nobody asks for it, and it is not kept. */
  readonly request: string | Buffer;
  readonly tee: boolean;
  /** How many choices the request asked for. */
  readonly choices: number;
  readonly outgoing: Outgoing;
  readonly watch: Watch;
}

/** What a delivery does with the answer, after its head. */
export interface Delivery {
  data(chunk: Buffer): void;
  end(): void;
  fail(problem: Problem): void;
}

/** What a delivery may ask of the backend while the answer runs. */
export interface Flow {
  pause(): void;
  resume(): void;
  cancel(): void;
}

/** How an exchange ended, for the log line. */
export interface Outcome {
  readonly status: number;
  readonly tee?: 'attested' | 'failed';
  readonly problem?: Problem;
}

/** The last one looked at: a backend says the same in nearly all of its answers. */
let known = { contentType: '', type: '' };

export function mediaType(headers: IncomingHttpHeaders): string {
  const contentType = headers['content-type'] ?? '';
  if (contentType !== known.contentType)
    known = { contentType, type: contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '' };
  return known.type;
}

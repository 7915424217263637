// The sidecar client: keeps a connection to the sidecar, over which attestations and sessions are requested.
import type { Socket } from 'node:net';
import type { Hello, KeysFrame, SessionFrame, SharedKeys } from '../../proto/attestation/frames.ts';
import { delayAfter } from '../base/backoff.ts';
import { type AttestRequestOptions, AttestRequests } from './attest-requests.ts';
import type { Refusal, Session, SessionEnds, Sidecar, SidecarState } from './interfaces.ts';
import { type Checker, createSessions, noSession, type Sessions, unavailable } from './sessions.ts';
import { connectOwned, type Link, openLink, SocketRefused } from './sidecar-link.ts';

/** Backoff for connecting. An attempt costs a refused Unix connection; a longer wait delays every response that waits for a restart. */
const RECONNECT = { min_ms: 25, max_ms: 250 };
/** A connection that lasted this long counts as established; the backoff begins anew. */
const STEADY_MS = 1_000;
/** A refused sidecar is tried again after this time, because it may have been replaced. */
const REFUSED_RETRY_MS = 5_000;

interface SidecarOptions extends AttestRequestOptions {
  readonly sidecar_socket: string;
  /** A user who may own the socket beside root and this process's user; null: no other user. */
  readonly sidecar_uid: number | null;
  readonly allow_simulated: boolean;
  readonly checker: Pick<Checker, 'warm' | 'check' | 'checkSession'>;
  /** Reports state changes for the log, never content. `refusal` is set in the state `refused`. */
  readonly onState?: (state: SidecarState, reason: string, refusal: Refusal | null) => void;
  /** A sidecar with a processor is connected. */
  readonly onProcessor?: () => void;
  /** The keys for sealed requests that gateways share at this sidecar. */
  readonly onKeys?: (keys: SharedKeys) => void;
  /** A session was checked, and responses are signed in it from now on. */
  readonly onSession?: (session: Session) => void;
}

const cannotAttest = (message: string) => unavailable(`The sidecar cannot attest: ${message}`);

export function createSidecar(options: SidecarOptions): Sidecar {
  const client = new SidecarClient(options);
  client.connect();
  return client;
}

class SidecarClient implements Sidecar {
  readonly #options: SidecarOptions;
  state: SidecarState = 'connecting';
  refused: Refusal | null = null;
  hello: Hello | null = null;
  unavailable: Hello['trouble'] = null;
  #link: Link | null = null;
  #failures = 0;
  #reconnect: NodeJS.Timeout | null = null;
  /** Requests that wait for a sidecar, each with the time since which it waits. */
  readonly #waiting = new Map<() => void, number>();
  readonly #sessions: Sessions;
  readonly #requests: AttestRequests;
  readonly attest: Sidecar['attest'];

  constructor(options: SidecarOptions) {
    this.#options = options;
    this.#sessions = createSessions(options.checker);
    this.#requests = new AttestRequests(options, this.#sessions, () => this.#connected);
    this.attest = this.#requests.attest;
  }

  get #connected(): Link | null {
    return this.state === 'connected' ? this.#link : null;
  }

  get #simulatedRoot(): string | null {
    return this.hello?.simulated?.root ?? null;
  }

  get session() {
    return this.#sessions.current;
  }

  get sessionEnds(): SessionEnds | null {
    return this.#sessions.ends;
  }

  get pending() {
    return this.#requests.pending + this.#waiting.size;
  }

  get oldest_ms() {
    const [since_ms = Number.POSITIVE_INFINITY] = this.#waiting.values();
    return Math.max(this.#requests.oldest_ms, performance.now() - since_ms, 0);
  }

  connect(): void {
    this.#reconnect = null;
    const began_ms = performance.now();
    let usable = true;
    const refuse = (refusal: Refusal) => {
      usable = false;
      this.#setState('refused', refusal.message, refusal);
    };
    const disconnected = (reason: string) => {
      this.#disconnected();
      if (this.state === 'closed') return;
      if (usable) this.#setState('connecting', reason);
      // The backoff also grows for a sidecar that sends hello and disconnects at once.
      this.#failures = performance.now() - began_ms > STEADY_MS ? 1 : this.#failures + 1;
      const wait_ms = usable ? delayAfter(this.#failures, RECONNECT) : REFUSED_RETRY_MS;
      this.#reconnect = setTimeout(() => this.connect(), wait_ms);
    };
    let socket: Socket;
    try {
      socket = connectOwned(this.#options.sidecar_socket, this.#options.sidecar_uid);
    } catch (error) {
      if (error instanceof SocketRefused) refuse(error);
      return disconnected((error as NodeJS.ErrnoException).code ?? 'unknown');
    }
    const opened = openLink(socket, {
      hello: (greeting, again) => {
        if (greeting.simulated !== null && !this.#options.allow_simulated) {
          refuse({ code: 'simulated', message: 'the sidecar is simulated and ALLOW_SIMULATED is not 1' });
          return opened.close();
        }
        this.#greeted(opened, greeting, again);
      },
      frame: (frame) => {
        if (frame.type === 'failed') return this.#sessions.failed(frame) || this.#requests.failed(frame);
        if (frame.type === 'keys') return this.#options.onKeys?.(frame);
        if (frame.type === 'status') {
          this.unavailable = frame.trouble;
          return;
        }
        const root = this.#simulatedRoot;
        const checked = frame.type === 'session' ? this.#received(frame, root) : this.#requests.attested(frame, root);
        void checked.then((refusal) => {
          // A new connection may have replaced this one.
          if (refusal === null || this.#link !== opened) return;
          refuse(refusal);
          opened.close();
        });
      },
      closed: (reason, end) => {
        if (end === 'other_protocol') refuse({ code: 'other_protocol', message: reason });
        disconnected(reason);
      },
    });
    this.#link = opened;
  }

  #greeted(link: Link, greeting: Hello, again: boolean): void {
    this.hello = greeting;
    this.unavailable = greeting.trouble;
    this.#setState('connected', greeting.attester);
    this.#options.checker.warm();
    if (greeting.cpu !== null && !again) this.#options.onProcessor?.();
    if (again) return; // Everything pending was already requested on this connection.
    this.#requests.repeat(link);
    for (const wake of this.#waiting.keys()) wake();
  }

  #disconnected(): void {
    this.#link = null;
    this.hello = null;
    this.unavailable = null;
    this.#sessions.disconnected();
  }

  #setState(next: SidecarState, reason: string, refusal: Refusal | null = null): void {
    const changed = this.state !== next || this.refused?.code !== refusal?.code;
    this.state = next;
    this.refused = refusal;
    if (changed) this.#options.onState?.(next, reason, refusal);
  }

  async #received(frame: SessionFrame, simulatedRoot: string | null): Promise<Refusal | null> {
    const refusal = await this.#sessions.received(frame, simulatedRoot);
    const session = this.#sessions.current;
    if (refusal === null && frame.id === null && session !== null) this.#options.onSession?.(session);
    return refusal;
  }

  sessionChecked(): Promise<void> {
    return this.#sessions.checked();
  }

  sendKeys(frame: KeysFrame): void {
    this.#connected?.send(frame);
  }

  async challenge(challenge: string, timeout_ms: number): Promise<Session> {
    if (this.hello !== null && this.hello.cpu === null) throw noSession();
    const link = this.#connected;
    if (link === null) throw unavailable('No sidecar is connected.');
    return this.#sessions.request(challenge, link, this.#simulatedRoot, timeout_ms);
  }

  ready(wait_ms: number): Promise<void> {
    if (this.unavailable !== null) return Promise.reject(cannotAttest(this.unavailable.message));
    if (this.state === 'connected') return Promise.resolve();
    return new Promise((resolve, reject) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        if (this.unavailable === null) resolve();
        else reject(cannotAttest(this.unavailable.message));
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(wake);
        reject(
          unavailable(
            this.state === 'refused'
              ? 'The sidecar that is there may not be used: /health says why.'
              : 'No sidecar is connected.',
          ),
        );
      }, wait_ms);
      this.#waiting.set(wake, performance.now());
    });
  }

  close(): void {
    this.#setState('closed', 'the gateway stops');
    clearTimeout(this.#reconnect ?? undefined);
    this.#requests.close();
    this.#link?.close();
  }
}

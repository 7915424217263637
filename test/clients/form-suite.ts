// What every client of /v1/responses, /v1/messages and /v1/embeddings is held to, whatever its API looks like.
import { expect, it } from 'vitest';
import { UnprovenAnswerError, verifyingFetch } from '../../verify/clients/fetch.ts';
import { type Verified, type VerifyOptions, verifyAttestation } from '../../verify/index.ts';
import type { Delivery } from './driver.ts';
import { FORM_ANSWER, type Form, vectorOf } from './form-scripts.ts';
import type { Matrix } from './matrix.ts';
import type { Service } from './service.ts';

/** How tee is asked for. */
export type FormTee = 'off' | 'body' | 'header';

export interface FormQuestion {
  readonly baseURL: string;
  readonly apiKey: string;
  readonly fetch: typeof globalThis.fetch;
  readonly model: 'hello' | 'tools' | 'dies';
  readonly content: string;
  readonly delivery: Delivery;
  readonly tee: FormTee;
}

/** What a client's code fills in as the answer comes. */
export interface FormHeard {
  /** The text, or the vector as JSON. */
  text: string;
  /** The arguments of the tool call. */
  call: unknown;
  /** Whether the client said that the answer is complete. */
  ended: boolean;
  /** The answer's own id, where the client hands it out. */
  id: string | null;
  /** Everywhere the client lets a program find the attestation, by a name for the table. */
  readonly found: Record<string, unknown>;
}

export interface FormClient {
  /** With its version, for the table. */
  readonly name: string;
  readonly form: Form;
  readonly deliveries: readonly Delivery[];
  /** How each way of asking for tee is written in this client; null where it has none. */
  readonly asks: { readonly body: string | null; readonly header: string };
  /** Where a program finds the attestation: exactly these. None where the client drops it. */
  readonly places: { readonly [delivery in Delivery]: readonly string[] };
  ask(question: FormQuestion, heard: FormHeard): Promise<void>;
}

/** A fetch that keeps what went out and what came in. */
interface Wire {
  readonly fetch: typeof globalThis.fetch;
  sent: string;
  received: string;
  attestationId: string | null;
}

/** @param between what a network does to answers */
function wire(between: (text: string) => string = (text) => text): Wire {
  const kept: Wire = {
    sent: '',
    received: '',
    attestationId: null,
    async fetch(input, init) {
      const response = await fetch(input, init);
      kept.sent = typeof init?.body === 'string' ? init.body : '';
      kept.attestationId = response.headers.get('x-attestation-id');
      kept.received = between(await response.text());
      const { status, headers } = response;
      return new Response(kept.received, { status, headers: { 'content-type': headers.get('content-type') ?? '' } });
    },
  };
  return kept;
}

/** @param service called when a test runs: it starts in beforeAll */
export function formSuite(client: FormClient, matrix: Matrix, service: () => Service): void {
  const { form } = client;
  const row = `${client.name} ${form}`;
  const models = form === '/v1/embeddings' ? (['hello'] as const) : (['hello', 'tools'] as const);
  const tees = (['body', 'header'] as const).filter((tee) => client.asks[tee] !== null);

  const heardNothing = (): FormHeard => ({ text: '', call: null, ended: false, id: null, found: {} });
  const ask = async (heard: FormHeard, fetch: typeof globalThis.fetch, given: Partial<FormQuestion>) => {
    const { url, key } = service();
    const question = { baseURL: url, apiKey: key, model: 'hello', content: 'Good day.', tee: 'off' } as const;
    await client.ask({ ...question, delivery: 'whole', fetch, ...given }, heard);
    return heard;
  };
  const expectAnswer = ({ text, call, ended }: FormHeard, model: string) => {
    expect(ended).toBe(true);
    if (form === '/v1/embeddings') expect(JSON.parse(text)).toEqual(vectorOf(0));
    else if (model === 'tools') expect(call).toEqual({ city: 'Paris' });
    else expect([text, call]).toEqual([FORM_ANSWER, null]);
  };
  const byId = async (id: string): Promise<unknown> => {
    const { url, key } = service();
    const authorization = `Bearer ${key}`;
    const response = await fetch(`${url.replace(/\/v1$/, form)}/${id}/attestation`, { headers: { authorization } });
    expect(response.status).toBe(200);
    return response.json();
  };

  for (const delivery of client.deliveries) {
    it(`has its ${delivery} answer without tee, and finds no attestation`, async () => {
      for (const model of models) {
        const carried = wire();
        const heard = await ask(heardNothing(), carried.fetch, { delivery, model });
        expectAnswer(heard, model);
        expect(Object.values(heard.found).filter((one) => one !== undefined)).toEqual([]);
        expect(service().seen.at(-1)?.body).toBe(carried.sent);
      }
      matrix.passed(row, delivery, null);
    });

    for (const tee of tees)
      it.each(models)(`finds the proof of its ${delivery} answer when it asks by ${tee}: %s`, async (model) => {
        const carried = wire();
        const heard = await ask(heardNothing(), carried.fetch, { delivery, model, tee });
        expectAnswer(heard, model);
        expect(Object.keys(heard.found)).toEqual(client.places[delivery]);
        const { tee: asked, ...rest } = JSON.parse(carried.sent);
        expect(asked).toBe(tee === 'body' ? true : undefined);
        expect(JSON.parse(service().seen.at(-1)?.body ?? '')).toEqual(rest);

        const kept = await byId(carried.attestationId ?? '');
        const expected = expectedOf(form, delivery, carried);
        const { exchange } = await verifyAttestation(kept, { ...optionsOf(service()), expected });
        expect(exchange.request).toBe(carried.sent);
        expect(exchange.response).toContain(form === '/v1/embeddings' ? '"embedding"' : 'scripted');
        for (const [place, found] of Object.entries(heard.found)) {
          expect(found, place).toEqual(kept);
          matrix.passed(row, delivery, { asked: client.asks[tee] ?? '', found: place });
        }
        if (heard.id !== null) expect(await byId(heard.id)).toEqual(kept);
        const found = heard.id === null ? 'GET by x-attestation-id' : "GET by the answer's id";
        matrix.passed(row, delivery, { asked: client.asks[tee] ?? '', found });
      });

    it(`has its ${delivery} answer through a verifying fetch`, async () => {
      for (const model of models) {
        const proofs: Verified[] = [];
        const carried = wire();
        const send = checked(service(), carried, (proof) => proofs.push(proof));
        expectAnswer(await ask(heardNothing(), send, { delivery, model }), model);
        expect(proofs.map(({ exchange }) => exchange.request)).toEqual([carried.sent]);
      }
      matrix.passed(row, delivery, { asked: 'fetch: verifyingFetch()', found: 'onVerified' });
    });

    it(`throws for a ${delivery} answer that was changed on its way to a verifying fetch`, async () => {
      for (const [change, code] of CHANGES[delivery]) {
        const carried = wire((text) => change(text, form));
        const send = checked(service(), carried, () => expect.unreachable('it was proven'));
        const heard = heardNothing();
        const error = await ask(heard, send, { delivery }).catch((cause: unknown) => cause);
        // Of a whole answer the client throws an error of its own, for the response that stands for the refusal.
        if (delivery === 'whole') expect(textOf(error)).toContain(`"${code}"`);
        else expect(unprovenIn(error)?.code).toBe(code);
        expect(heard.ended).toBe(false);
      }
    });

    it(`throws for a ${delivery} answer that the GPU did not prove, and hears no end of it`, async () => {
      for (const tee of tees) {
        const heard = heardNothing();
        const baseURL = service().unprovenUrl;
        const error = await ask(heard, wire().fetch, { delivery, tee, baseURL }).catch((cause: unknown) => cause);
        expect(textOf(error)).toContain('attestation_unavailable');
        expect([heard.ended, Object.values(heard.found).filter((one) => one !== undefined)]).toEqual([false, []]);
      }
    });

    it(`throws when the backend dies under its ${delivery} answer`, async () => {
      for (const tee of ['off', ...tees] as const) {
        const heard = heardNothing();
        const error = await ask(heard, fetch, { delivery, tee, model: 'dies' }).catch((cause: unknown) => cause);
        expect(error).toBeInstanceOf(Error);
        expect(heard.ended).toBe(false);
      }
    });
  }
}

const optionsOf = ({ simulatedRoot }: Service): VerifyOptions => ({ simulatedRoot });

function expectedOf(form: Form, delivery: Delivery, { sent, received }: Wire): VerifyOptions['expected'] {
  const answered = delivery === 'whole' ? { response: received } : { transcript: new TextEncoder().encode(received) };
  return { endpoint: form, request: sent, ...answered };
}

function checked(service: Service, { fetch }: Wire, onVerified: (proof: Verified) => void): typeof globalThis.fetch {
  return verifyingFetch({ ...optionsOf(service), fetch, onVerified });
}

type Change = (text: string, form: Form) => string;
const changed: Change = (text, form) =>
  form === '/v1/embeddings' ? text.replace(/"model": ?"scripted"/, '"model":"other"') : text.replace('trav', 'trev');

/** What a network does, and the code by which it is told. */
const CHANGES: { readonly [delivery in Delivery]: readonly (readonly [Change, string])[] } = {
  whole: [
    [changed, 'response_mismatch'],
    [(text) => text.replace(/,"attestation":.*\}$/s, '}'), 'attestation_missing'],
  ],
  stream: [
    [changed, 'stream_mismatch'],
    // One delta twice.
    [(text) => text.replace(/event: [^\n]*\ndata: [^\n]*trav[^\n]*\n\n/, '$&$&'), 'stream_mismatch'],
    // Everything from the event with the proof on.
    [(text) => text.slice(0, text.lastIndexOf('event: ', text.indexOf('"attestation":'))), 'attestation_missing'],
  ],
};

/** Clients wrap what their fetch throws: it is the error, or a cause of it. */
function unprovenIn(error: unknown): UnprovenAnswerError | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 10; at = at.cause, depth++)
    if (at instanceof UnprovenAnswerError) return at;
  return null;
}

/** All that an error has for a program to read, its causes included. */
function textOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return String(error);
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  return [message, JSON.stringify(error), cause === undefined ? '' : textOf(cause)].join(' ');
}

// What each real client is driven through: one question in the client's own words, and all that came of it.

/** How tee is asked for; `wrong` is `tee: "yes"` in the body. */
export type Tee = 'off' | 'body' | 'header' | 'wrong';
export type Delivery = 'whole' | 'stream';

export interface Question {
  readonly baseURL: string;
  readonly apiKey: string;
  /** Of scripts.ts, or of the demo engine. */
  readonly model: string;
  readonly content: string;
  readonly delivery: Delivery;
  readonly tee: Tee;
  /** Offers the tool get_weather. */
  readonly tools: boolean;
  readonly endpoint: 'chat' | 'text';
  /** Leaves the stream when its first piece of text has come, in the client's own way. */
  readonly leave: boolean;
}

/** The client's own error, as a program that catches it can read it. */
export interface Failure {
  /** Its class. */
  readonly type: string;
  readonly status: number | null;
  readonly code: string | null;
  readonly message: string;
}

export interface Outcome {
  /** The text, or the arguments of the tool call, as far as it came. */
  readonly text: string;
  readonly finish: string | null;
  readonly failure: Failure | null;
  /** The request's body as it went out. */
  readonly sent: string;
  /** Everywhere the client lets a program find the attestation, by a name for the table. Without tee: undefined, or not there. */
  readonly found: Readonly<Record<string, unknown>>;
}

export interface Client {
  /** With its version, for the table. */
  readonly name: string;
  /** How each way of asking for tee is written in this client. */
  readonly asks: { readonly body: string; readonly header: string };
  /** The classes of its errors. */
  readonly errors: { readonly [status in 400 | 401 | 429 | 503]: string };
  readonly endpoints: readonly ('chat' | 'text')[];
  ask(question: Question): Promise<Outcome>;
  /** The ids of the models, where the client can list them. */
  models?(baseURL: string, apiKey: string): Promise<string[]>;
}

/** What a client's code fills in as the answer comes, so that what had come is known when it breaks off. */
export interface Heard {
  text: string;
  finish: string | null;
  readonly found: Record<string, unknown>;
}

/** Runs a client's own code and keeps what it heard, whether or not it threw. */
export async function listen(
  code: (heard: Heard) => Promise<void>,
  failureOf: (error: unknown) => Failure,
  sent: () => string,
): Promise<Outcome> {
  const heard: Heard = { text: '', finish: null, found: {} };
  let failure: Failure | null = null;
  try {
    await code(heard);
  } catch (error) {
    failure = failureOf(error);
  }
  return { ...heard, failure, sent: sent() };
}

/** For clients whose errors have `status` and `code` as openai's do. */
export function openaiFailure(error: unknown): Failure {
  const { status, code, message } = error as { status?: number; code?: string; message?: string };
  return {
    type: (error as Error).constructor.name,
    status: status ?? null,
    code: code ?? null,
    message: message ?? String(error),
  };
}

export const WEATHER = {
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
} as const;

// LangChain: a ChatOpenAI whose every response is proven, with the proof in the message's response metadata.
import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import type { BaseMessage } from '@langchain/core/messages';
import type { ChatGenerationChunk, ChatResult } from '@langchain/core/outputs';
import { ChatOpenAI, type ChatOpenAIFields } from '@langchain/openai';
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { LruMap } from '../common/lru.ts';
import type { Level, Verified } from '../policy/options.ts';
import { type VerifyingFetchOptions, verifyingFetch } from './fetch.ts';

/** `message.response_metadata.countersign`, of a whole message and of the last chunks of a stream. */
export interface Proof {
  readonly level: Level;
  readonly attestation: Attestation;
}

export interface ChatCountersignFields extends ChatOpenAIFields {
  /** How responses are verified. Its `fetch` sends the requests, or else that of `configuration`. */
  readonly verify?: VerifyingFetchOptions;
}

/** Names the call that a request belongs to. It never leaves this process. */
const CALL = 'x-countersign-call';
/** Limit for calls whose proof is never read, because the caller gave up. */
const MAX_CALLS = 1000;

/**
 * ```ts
 * const model = new ChatCountersign({ model: 'm', configuration: { baseURL }, verify: { collateral: createCollateral({ fetch }) } });
 * const message = await model.invoke('Hello');
 * message.response_metadata.countersign; // Proof
 * ```
 * A response that is not proven is thrown as LangChain throws any other error of the server, with the code of the failed check, and is
 * not retried. A stream that is not proven ends with an UnprovenAnswerError in place of its last chunk.
 */
export class ChatCountersign extends ChatOpenAI {
  readonly #fields: ChatCountersignFields;
  readonly #proving: Proving;

  /** @param proving shared with the model that this one is a copy of. */
  constructor(fields: ChatCountersignFields, proving = provingOf(fields)) {
    super({ ...fields, configuration: { ...fields.configuration, fetch: proving.fetch } });
    this.#fields = fields;
    this.#proving = proving;
  }

  override async _generate(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): Promise<ChatResult> {
    const call = crypto.randomUUID();
    const result = await super._generate(messages, namedCall(options, call), runManager);
    for (const { message } of result.generations) this.#prove(message, call);
    return result;
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    const call = crypto.randomUUID();
    for await (const chunk of super._streamResponseChunks(messages, namedCall(options, call), runManager)) {
      this.#prove(chunk.message, call);
      yield chunk;
    }
  }

  /** Like ChatOpenAI's own, which would return a plain ChatOpenAI; bindTools and withStructuredOutput call it. */
  override withConfig(config: Partial<this['ParsedCallOptions']>): ChatCountersign {
    const model = new ChatCountersign(this.#fields, this.#proving);
    model.defaultOptions = { ...this.defaultOptions, ...config };
    return model;
  }

  /** Attaches a proof to the next message. It is verified before the chunk with the finish reason is forwarded. */
  #prove(message: BaseMessage, call: string): void {
    const proof = this.#proving.proofs.get(call);
    if (proof === undefined) return;
    this.#proving.proofs.delete(call);
    message.response_metadata = { ...message.response_metadata, countersign: proof };
  }
}

interface Proving {
  readonly fetch: typeof globalThis.fetch;
  /** By the name of their call. */
  readonly proofs: LruMap<string, Proof>;
}

function provingOf({ verify, configuration }: ChatCountersignFields): Proving {
  const { fetch: send = configuration?.fetch ?? globalThis.fetch, onVerified, ...options } = verify ?? {};
  const proofs = new LruMap<string, Proof>(MAX_CALLS);
  const fetch = verifyingFetch({
    ...options,
    fetch: (input, init) => {
      const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
      headers.delete(CALL);
      return send(input, { ...init, headers });
    },
    onVerified: (verified: Verified, request: Request) => {
      const call = request.headers.get(CALL);
      if (call !== null) proofs.set(call, { level: verified.level, attestation: verified.attestation });
      onVerified?.(verified, request);
    },
  });
  return { fetch, proofs };
}

/** ChatOpenAI gives the client a call's `options` for a whole response, and the call's own members for a stream. */
function namedCall<T extends object>(options: T, call: string): T {
  const { headers, options: inner } = options as { headers?: object; options?: { headers?: object } };
  return {
    ...options,
    headers: { ...headers, [CALL]: call },
    options: { ...inner, headers: { ...inner?.headers, [CALL]: call } },
  };
}

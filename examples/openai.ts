// openai (npm): `tee` and `attestation` as TypeScript sees them. The package sends and keeps both as they are; only its types
// do not know them. Import this file once, for its types alone:
//
//   import OpenAI from 'openai';
//   import type {} from './openai.ts';
//
//   const client = new OpenAI({ baseURL: 'http://127.0.0.1:8080/v1', apiKey: '…' });
//   const answer = await client.chat.completions.create({ model, messages, tee: true });
//   answer.attestation;                                   // of a whole answer
//   for await (const chunk of await client.chat.completions.create({ model, messages, stream: true, tee: true }))
//     chunk.attestation;                                  // of a stream: on the chunk that has finish_reason
//
// `tee: { batch: true }` lets the answer share its signature with others: under load it comes sooner.

/** docs/attestation.md says what each member is. */
export interface Attestation {
  raw: string;
  nonce: string;
  token: string;
  evidence?: { arch: string; report: string; certificate_chain: string }[];
  /** Where the signature is shared. */
  batch?: { salt: string; leaf_index: number; tree_size: number; path: string[] };
}

/** `true`: a signature of its own. `challenge`: 16 to 128 characters of yours, which the proof then holds. */
export type Tee = boolean | { batch?: boolean; challenge?: string };

declare module 'openai/resources/chat/completions/completions' {
  interface ChatCompletionCreateParamsBase {
    /** Asks for an attestation. */
    tee?: Tee;
  }
  interface ChatCompletion {
    attestation?: Attestation;
  }
  interface ChatCompletionChunk {
    attestation?: Attestation;
  }
}

declare module 'openai/resources/completions' {
  interface CompletionCreateParamsBase {
    /** Asks for an attestation. */
    tee?: Tee;
  }
  interface Completion {
    attestation?: Attestation;
  }
}

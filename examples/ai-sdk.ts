// Vercel AI SDK (@ai-sdk/openai-compatible): asks for the attestation and keeps it as provider metadata.
//
//   import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
//   import { attestationExtractor } from './ai-sdk.ts';
//
//   const countersign = createOpenAICompatible({
//     name: 'countersign',
//     baseURL: 'http://127.0.0.1:8080/v1',
//     metadataExtractor: attestationExtractor,
//   });
//   const { text, providerMetadata } = await generateText({
//     model: countersign('model'),
//     prompt: 'Hello',
//     providerOptions: { countersign: { tee: true } }, // goes into the request's body; the key is the provider's name
//   });
//   providerMetadata?.countersign?.attestation;       // with streamText: (await result.providerMetadata)?.countersign
//
// streamText does not throw: when an answer could not be proven, `await result.text` still resolves. Look at
// `await result.finishReason` ('error') or give `onError`, and take no text for an answer without its attestation.
import type { MetadataExtractor } from '@ai-sdk/openai-compatible';

type Metadata = Awaited<ReturnType<MetadataExtractor['extractMetadata']>>;

/** For `metadataExtractor`. The attestation stands under `countersign`, whatever the provider is called. */
export const attestationExtractor: MetadataExtractor = {
  extractMetadata: async ({ parsedBody }) => metadata(attestationOf(parsedBody)),
  createStreamExtractor() {
    let attestation: unknown;
    return {
      processChunk(chunk) {
        attestation ??= attestationOf(chunk);
      },
      buildMetadata: () => metadata(attestation),
    };
  },
};

function attestationOf(body: unknown): unknown {
  return typeof body === 'object' && body !== null && 'attestation' in body ? body.attestation : undefined;
}

function metadata(attestation: unknown): Metadata {
  return attestation === undefined ? undefined : ({ countersign: { attestation } } as Metadata);
}

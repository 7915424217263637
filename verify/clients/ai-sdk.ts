// Vercel's AI SDK: a provider whose every response is proven, with the attestation in its provider metadata.
import {
  createOpenAICompatible,
  type MetadataExtractor,
  type OpenAICompatibleProvider,
  type OpenAICompatibleProviderSettings,
} from '@ai-sdk/openai-compatible';
import { type VerifyingFetchOptions, verifyingFetch } from './fetch.ts';

export interface CountersignSettings extends Omit<OpenAICompatibleProviderSettings, 'name' | 'metadataExtractor'> {
  /** How responses are verified. Its `fetch` sends the requests, or else that of these settings. */
  readonly verify?: VerifyingFetchOptions;
}

/**
 * ```ts
 * const countersign = createCountersign({ baseURL, verify: { collateral: createCollateral({ fetch }) } });
 * const { text, providerMetadata } = await generateText({ model: countersign('m'), prompt: 'Hello' });
 * providerMetadata?.countersign?.attestation; // with streamText: (await result.providerMetadata)?.countersign
 * ```
 * A response that is not proven is thrown as an APICallError with the code of the failed check, without a retry. Where a stream is not
 * proven, text stream and promises throw an error at the end, whose `cause` is the UnprovenAnswerError.
 */
export function createCountersign({
  verify,
  fetch = globalThis.fetch,
  ...settings
}: CountersignSettings): OpenAICompatibleProvider {
  return createOpenAICompatible({
    ...settings,
    name: 'countersign',
    fetch: verifyingFetch({ fetch, ...verify }),
    metadataExtractor: attestationExtractor,
  });
}

type Metadata = Awaited<ReturnType<MetadataExtractor['extractMetadata']>>;

/** Reads the attestation from responses of the verifying fetch, so it is verified. */
const attestationExtractor: MetadataExtractor = {
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

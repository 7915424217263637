// Vercel's AI SDK: a provider whose every response is proven, with the attestation in its provider metadata.
import {
  createOpenAICompatible,
  type MetadataExtractor,
  type OpenAICompatibleProvider,
  type OpenAICompatibleProviderSettings,
} from '@ai-sdk/openai-compatible';
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { LruMap } from '../common/lru.ts';
import { type VerifyingFetchOptions, verifyingFetch } from './fetch.ts';

export interface CountersignSettings extends Omit<OpenAICompatibleProviderSettings, 'name' | 'metadataExtractor'> {
  /** How responses are verified. Its `fetch` sends the requests, or else that of these settings. */
  readonly verify?: VerifyingFetchOptions;
}

/**
 * ```ts
 * const countersign = createCountersign({ baseURL, verify: { collateral: createCollateral({ fetch }) } });
 * const { text, providerMetadata } = await generateText({ model: countersign('m'), prompt: 'Hello' });
 * providerMetadata?.countersign?.attestation; // the whole one; with streamText: (await result.providerMetadata)?.countersign
 * ```
 * A response that is not proven is thrown as an APICallError with the code of the failed check, without a retry. Where a stream is not
 * proven, text stream and promises throw an error at the end, whose `cause` is the UnprovenAnswerError.
 */
export function createCountersign({
  verify,
  fetch = globalThis.fetch,
  ...settings
}: CountersignSettings): OpenAICompatibleProvider {
  const whole = new LruMap<string, Attestation>(MAX_RESPONSES);
  return createOpenAICompatible({
    ...settings,
    name: 'countersign',
    fetch: verifyingFetch({
      fetch,
      ...verify,
      onVerified(verified, request) {
        whole.set(verified.attestation.raw, verified.attestation);
        verify?.onVerified?.(verified, request);
      },
    }),
    metadataExtractor: extractorOf(whole),
  });
}

/** Limit for responses whose metadata is never read, because the caller gave up. */
const MAX_RESPONSES = 1000;

type Metadata = Awaited<ReturnType<MetadataExtractor['extractMetadata']>>;

/**
 * Finds the attestation in responses of the verifying fetch, so it is verified.
 * @param whole by raw: a response may carry the compact form
 */
function extractorOf(whole: LruMap<string, Attestation>): MetadataExtractor {
  const wholeOf = (raw: string | undefined) => {
    const attestation = raw === undefined ? undefined : whole.get(raw);
    if (raw !== undefined) whole.delete(raw);
    return attestation === undefined ? undefined : ({ countersign: { attestation } } as unknown as Metadata);
  };
  return {
    extractMetadata: async ({ parsedBody }) => wholeOf(rawIn(parsedBody)),
    createStreamExtractor() {
      let raw: string | undefined;
      return {
        processChunk(chunk) {
          raw ??= rawIn(chunk);
        },
        buildMetadata: () => wholeOf(raw),
      };
    },
  };
}

function rawIn(body: unknown): string | undefined {
  const { attestation } = (body ?? {}) as { attestation?: Partial<Attestation> };
  return attestation?.raw;
}

// Clients of /v1/embeddings with x-tee set client-wide: most hand out the vectors alone, and the header's id finds the attestation.
import { createOpenAI } from '@ai-sdk/openai';
import { OpenAIEmbeddings } from '@langchain/openai';
import { embed } from 'ai';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { vectorOf } from './form-scripts.ts';
import { type FormClient, formSuite } from './form-suite.ts';
import { npmName, npmVersion } from './matrix.ts';
import { MODELS } from './scripts.ts';
import { serviceOf } from './service.ts';

const { matrix, service } = serviceOf('embeddings');

const attestationOf = (value: unknown): unknown => (value as { attestation?: unknown } | null | undefined)?.attestation;
const headersOf = (tee: string): Record<string, string> => (tee === 'header' ? { 'x-tee': '1' } : {});

const openai: FormClient = {
  name: npmName('openai'),
  form: '/v1/embeddings',
  deliveries: ['whole'],
  asks: { body: 'tee: true', header: 'defaultHeaders' },
  places: { whole: ['response.attestation'], stream: [] },
  async ask({ baseURL, apiKey, fetch, model, content, tee }, heard) {
    const client = new OpenAI({ baseURL, apiKey, fetch, maxRetries: 0, defaultHeaders: headersOf(tee) });
    const body = { model, input: content, ...(tee === 'body' ? { tee: true } : {}) };
    const response = await client.embeddings.create(body);
    heard.text = JSON.stringify(response.data[0]?.embedding);
    heard.ended = true;
    if (attestationOf(response) !== undefined) heard.found['response.attestation'] = attestationOf(response);
  },
};

const langchain: FormClient = {
  name: npmName('@langchain/openai'),
  form: '/v1/embeddings',
  deliveries: ['whole'],
  asks: { body: null, header: 'configuration.defaultHeaders' },
  places: { whole: [], stream: [] },
  async ask({ baseURL, apiKey, fetch, model, content, tee }, heard) {
    const configuration = { baseURL, fetch, defaultHeaders: headersOf(tee) };
    const embeddings = new OpenAIEmbeddings({ model, apiKey, maxRetries: 0, configuration });
    heard.text = JSON.stringify(await embeddings.embedQuery(content));
    heard.ended = true;
  },
};

const aiSdk: FormClient = {
  name: `ai ${npmVersion('ai')} + ${npmName('@ai-sdk/openai')}`,
  form: '/v1/embeddings',
  deliveries: ['whole'],
  asks: { body: null, header: 'headers' },
  places: { whole: ['response.body.attestation'], stream: [] },
  async ask({ baseURL, apiKey, fetch, model, content, tee }, heard) {
    const provider = createOpenAI({ baseURL, apiKey, fetch, headers: headersOf(tee) });
    const result = await embed({ model: provider.embeddingModel(model), value: content, maxRetries: 0 });
    heard.text = JSON.stringify(result.embedding);
    heard.ended = true;
    const found = attestationOf(result.response?.body);
    if (found !== undefined) heard.found['response.body.attestation'] = found;
  },
};

for (const client of [openai, langchain, aiSdk])
  describe(`${client.name} and /v1/embeddings`, () => formSuite(client, matrix, service));

describe('a client with x-tee in every request', () => {
  it('lists the models as without it, and is told that the list has no proof', async () => {
    const client = new OpenAI({ baseURL: service().url, apiKey: service().key, defaultHeaders: { 'x-tee': '1' } });
    const { data, response } = await client.models.list().withResponse();
    expect(data.data.map(({ id }) => id)).toEqual([...MODELS]);
    expect(response.headers.get('x-tee')).toBe('unsupported');
  });

  it('embeds documents in batches, each with a proof of its own', async () => {
    const ids: (string | null)[] = [];
    const watching: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      ids.push(response.headers.get('x-attestation-id'));
      return response;
    };
    const embeddings = new OpenAIEmbeddings({
      model: 'hello',
      apiKey: service().key,
      batchSize: 2,
      configuration: { baseURL: service().url, fetch: watching, defaultHeaders: { 'x-tee': '1' } },
    });
    expect(await embeddings.embedDocuments(['a', 'b', 'c'])).toEqual([0, 1, 0].map(vectorOf));
    expect(new Set(ids).size).toBe(2);
    expect(ids).not.toContain(null);
  });
});

// The framework adapters: the proof of every answer is where the framework keeps what its provider says.
import { generateText, streamText } from 'ai';
import { describe, expect, it } from 'vitest';
import { createCountersign } from '../../verify/clients/ai-sdk.ts';
import { UnprovenAnswerError } from '../../verify/clients/fetch.ts';
import { ChatCountersign, type Proof } from '../../verify/clients/langchain.ts';
import { verifyAttestation } from '../../verify/index.ts';
import { answer, chatAnswer, chatStream } from '../support/backend.ts';
import { namedStream, responseBody, responseEvents } from '../support/named-streams.ts';
import { useService } from '../support/service.ts';

const service = useService();
const simulatedRoot = () => service.sidecar.attester.simulated?.root;
const TOOL = {
  type: 'function' as const,
  function: { name: 'weather', parameters: { type: 'object', properties: {} } },
};
const CALLED = JSON.stringify({
  id: 'c-1',
  object: 'chat.completion',
  model: 'm',
  choices: [
    {
      index: 0,
      finish_reason: 'tool_calls',
      message: {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 't', type: 'function', function: { name: 'weather', arguments: '{"city":"Ulm"}' } }],
      },
    },
  ],
});

/** The signed request, where the proof verifies and is about this answer. */
async function provenRequest(proof: Proof | undefined, text: string) {
  expect(proof?.level).toBe('none');
  const { exchange } = await verifyAttestation(proof?.attestation, { simulatedRoot: simulatedRoot() });
  expect(exchange.response).toContain(text);
  return JSON.parse(exchange.request);
}

describe('ChatCountersign', () => {
  const model = (more: object = {}) =>
    new ChatCountersign({
      model: 'm',
      apiKey: 'any',
      configuration: { baseURL: `${service.url}/v1` },
      verify: { simulatedRoot: simulatedRoot() },
      ...more,
    });
  const proofIn = (message: { response_metadata: Record<string, unknown> }) =>
    message.response_metadata.countersign as Proof | undefined;

  it('has the proof in the metadata of a whole answer', async () => {
    service.backend.script = chatAnswer('Whole.');
    const message = await model().invoke('Hi');
    expect(message.text).toBe('Whole.');
    const request = await provenRequest(proofIn(message), 'Whole.');
    expect(request.tee).toMatchObject({ batch: true, challenge: expect.any(String) });
    expect(service.backend.seen.at(-1)?.headers['x-countersign-call']).toBeUndefined();
  });

  it('has it once in a stream, and in its chunks together', async () => {
    service.backend.script = chatStream(['One ', 'two.']);
    let all: Awaited<ReturnType<ReturnType<typeof model>['invoke']>> | undefined;
    let times = 0;
    let text = '';
    for await (const chunk of await model().stream('Hi')) {
      text += chunk.text;
      if (proofIn(chunk) !== undefined) times++;
      all = all === undefined ? chunk : all.concat(chunk);
    }
    expect([text, times]).toEqual(['One two.', 1]);
    if (all === undefined) throw new Error('the stream had no chunk');
    expect(await provenRequest(proofIn(all), 'One two.')).toMatchObject({ stream: true });
  });

  it('keeps it through bindTools', async () => {
    service.backend.script = answer(CALLED);
    const message = await model().bindTools([TOOL]).invoke('Hi');
    expect(message.tool_calls?.[0]?.args).toEqual({ city: 'Ulm' });
    expect(await provenRequest(proofIn(message), 'Ulm')).toMatchObject({ tools: [TOOL] });
  });

  it('gives each of many calls at once its own', async () => {
    service.backend.script = (request, response) => {
      const { messages } = JSON.parse(request.body) as { messages: { content: string }[] };
      return chatAnswer(`You said ${messages.at(-1)?.content}.`)(request, response);
    };
    const words = Array.from({ length: 12 }, (_, i) => `word ${i}`);
    const got = await model().batch(words);
    for (const [i, message] of got.entries()) {
      expect(message.text).toBe(`You said ${words[i]}.`);
      await provenRequest(proofIn(message), `You said ${words[i]}.`);
    }
  });

  it.each([
    ['whole', false],
    ['streamed', true],
  ])('has it in answers of /v1/responses, %s', async (_how, streaming) => {
    service.backend.script = streaming
      ? namedStream(responseEvents(['Hel', 'lo.']))
      : answer(JSON.stringify(responseBody('Hello.')));
    const message = await model({ useResponsesApi: true, streaming }).invoke('Hi');
    expect(message.text).toBe('Hello.');
    await provenRequest(proofIn(message), 'Hello.');
  });

  it('ends a stream that is not proven with an error and no last chunk', async () => {
    service.backend.script = chatStream(['One ', 'two.']);
    const changing: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      const text = (await response.text()).replace('two.', 'ten.');
      return new Response(text, { headers: { 'content-type': 'text/event-stream' } });
    };
    const finishes: unknown[] = [];
    const error = await (async () => {
      const verify = { simulatedRoot: simulatedRoot(), fetch: changing };
      for await (const chunk of await model({ verify }).stream('Hi'))
        finishes.push(chunk.response_metadata.finish_reason);
    })().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(UnprovenAnswerError);
    expect((error as UnprovenAnswerError).code).toBe('stream_mismatch');
    expect(finishes.filter(Boolean)).toEqual([]);
  });
});

describe('createCountersign', () => {
  const provider = (options: { fetch?: typeof fetch } = {}) =>
    createCountersign({ baseURL: `${service.url}/v1`, verify: { simulatedRoot: simulatedRoot(), ...options } });
  type Found = { countersign?: { attestation?: unknown } } | undefined;

  it('has the attestation in the metadata of a whole answer', async () => {
    service.backend.script = chatAnswer('Whole.');
    const { text, providerMetadata } = await generateText({ model: provider()('m'), prompt: 'Hi' });
    expect(text).toBe('Whole.');
    const { exchange } = await verifyAttestation((providerMetadata as Found)?.countersign?.attestation, {
      simulatedRoot: simulatedRoot(),
    });
    expect(exchange.response).toContain('Whole.');
  });

  it('has it in that of a stream', async () => {
    service.backend.script = chatStream(['One ', 'two.']);
    const result = streamText({ model: provider()('m'), prompt: 'Hi' });
    expect(await result.text).toBe('One two.');
    const found = (await result.providerMetadata) as Found;
    const { exchange } = await verifyAttestation(found?.countersign?.attestation, { simulatedRoot: simulatedRoot() });
    expect(exchange.response).toContain('One two.');
  });

  it('throws at the end of a stream that is not proven, and gives no finish reason', async () => {
    service.backend.script = chatStream(['One ', 'two.'], 50);
    const changing: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      const changed = new TransformStream<string, string>({
        transform: (text, controller) => controller.enqueue(text.replace('two.', 'ten.')),
      });
      const body = response.body
        ?.pipeThrough(new TextDecoderStream())
        .pipeThrough(changed)
        .pipeThrough(new TextEncoderStream());
      return new Response(body ?? null, { headers: { 'content-type': 'text/event-stream' } });
    };
    const result = streamText({ model: provider({ fetch: changing })('m'), prompt: 'Hi', onError: () => {} });
    let text = '';
    const error = await (async () => {
      for await (const delta of result.textStream) text += delta;
    })().catch((cause: unknown) => cause);
    expect(text).toBe('One ten.');
    expect(error).toMatchObject({ name: 'AI_APICallError', cause: { code: 'batch_proof_invalid' } });
    await expect(result.finishReason).rejects.toBe(error);
  });
});

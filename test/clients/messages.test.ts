// @anthropic-ai/sdk (npm) and /v1/messages: it keeps what it does not know, of a message and of each event.
import Anthropic from '@anthropic-ai/sdk';
import { describe, expect, it } from 'vitest';
import { WEATHER } from './driver.ts';
import { type FormClient, type FormHeard, type FormQuestion, formSuite } from './form-suite.ts';
import { npmName } from './matrix.ts';
import { MODELS } from './scripts.ts';
import { serviceOf } from './service.ts';

const { matrix, service } = serviceOf('messages');

const attestationOf = (value: unknown): unknown => (value as { attestation?: unknown } | null)?.attestation;

/** Its base URL is without `/v1`. */
function connect({ baseURL, apiKey, fetch, tee }: Pick<FormQuestion, 'baseURL' | 'apiKey' | 'fetch' | 'tee'>) {
  return new Anthropic({
    baseURL: baseURL.replace(/\/v1$/, ''),
    apiKey,
    fetch,
    maxRetries: 0,
    defaultHeaders: tee === 'header' ? { 'x-tee': '1' } : {},
  });
}

const bodyOf = ({ model, content, tee }: FormQuestion) => ({
  model,
  max_tokens: 50,
  messages: [{ role: 'user' as const, content }],
  tools: model === 'tools' ? [{ name: WEATHER.name, input_schema: { ...WEATHER.parameters, required: ['city'] } }] : [],
  ...(tee === 'body' ? { tee: true } : {}),
});

function keep(message: Anthropic.Message, heard: FormHeard): void {
  heard.text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
  heard.call = message.content.find((block) => block.type === 'tool_use')?.input ?? null;
  heard.ended = message.stop_reason !== null;
  heard.id = message.id;
}

const whole = (question: FormQuestion) => connect(question).messages.create(bodyOf(question));

/** `messages.create`, whole and with `stream: true`. */
const created: FormClient = {
  name: npmName('@anthropic-ai/sdk'),
  form: '/v1/messages',
  deliveries: ['whole', 'stream'],
  asks: { body: 'tee: true', header: 'defaultHeaders' },
  places: { whole: ['message.attestation'], stream: ['message_delta: event.attestation'] },
  async ask(question, heard) {
    if (question.delivery === 'whole') {
      const message = await whole(question);
      keep(message, heard);
      if (attestationOf(message) !== undefined) heard.found['message.attestation'] = attestationOf(message);
      return;
    }
    let input = '';
    for await (const event of await connect(question).messages.create({ ...bodyOf(question), stream: true })) {
      if (event.type === 'message_start') heard.id = event.message.id;
      if (event.type === 'content_block_delta') {
        if (event.delta.type === 'text_delta') heard.text += event.delta.text;
        if (event.delta.type === 'input_json_delta') input += event.delta.partial_json;
      }
      if (event.type === 'message_delta' && attestationOf(event) !== undefined)
        heard.found['message_delta: event.attestation'] = attestationOf(event);
      if (event.type === 'message_stop') heard.ended = true;
    }
    heard.call = input === '' ? null : JSON.parse(input);
    if (!heard.ended) throw new Error('the stream ended without its last event');
  },
};

/** `messages.stream`: its final message is made of what it knows; its events are as they came. */
const helper: FormClient = {
  name: `${npmName('@anthropic-ai/sdk')} messages.stream`,
  form: '/v1/messages',
  deliveries: ['stream'],
  asks: created.asks,
  places: { whole: [], stream: ["on('streamEvent'): event.attestation"] },
  async ask(question, heard) {
    const stream = connect(question).messages.stream(bodyOf(question));
    stream.on('streamEvent', (event) => {
      const found = attestationOf(event);
      if (found !== undefined) heard.found["on('streamEvent'): event.attestation"] = found;
    });
    const message = await stream.finalMessage();
    keep(message, heard);
    if (attestationOf(message) !== undefined) heard.found['finalMessage().attestation'] = attestationOf(message);
  },
};

for (const client of [created, helper])
  describe(`${client.name} and /v1/messages`, () => formSuite(client, matrix, service));

describe('@anthropic-ai/sdk with x-tee in every request', () => {
  it('lists the models as without it, and is told that the list has no proof', async () => {
    const client = connect({ baseURL: service().url, apiKey: service().key, fetch, tee: 'header' });
    const { data, response } = await client.models.list().withResponse();
    expect(data.data.map(({ id }) => id)).toEqual([...MODELS]);
    expect(response.headers.get('x-tee')).toBe('unsupported');
  });

  it('has its own errors', async () => {
    const wrong = connect({ baseURL: service().url, apiKey: 'sk-wrong', fetch, tee: 'header' });
    const error = await wrong.messages
      .create({ model: 'hello', max_tokens: 5, messages: [] })
      .catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(Anthropic.AuthenticationError);
  });
});

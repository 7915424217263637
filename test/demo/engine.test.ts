import { afterAll, beforeAll, expect, test } from 'vitest';
import { createEngineApp } from '../../demo/engine/app.ts';
import { createEngine } from '../../demo/engine/engine.ts';
import { type RunningEngine, startEngine } from '../../demo/engine/server.ts';
import * as words from '../../demo/engine/words.ts';

const engine = createEngine();
const app = createEngineApp([engine]);
let running: RunningEngine;

beforeAll(async () => {
  running = await startEngine({ engines: [engine] });
});
afterAll(() => running.close());

interface Choice {
  index: number;
  text: string;
  message: { role: string; content: string };
  delta: { role?: string; content?: string };
  finish_reason: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: two shapes, looked at member by member
  logprobs: any;
}
interface Answer {
  id: string;
  object: string;
  model: string;
  choices: Choice[];
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
  error: { message: string; type: string; param: string | null; code: string | null };
}

const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';

const ask = (path: string, body: object | string): Promise<Response> =>
  Promise.resolve(
    app.request(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    }),
  );
const whole = async (path: string, body: object): Promise<Answer> => (await ask(path, body)).json() as Promise<Answer>;
const say = (content: unknown, more: object = {}) => ({
  model: 'countersign-demo',
  messages: [{ role: 'user', content }],
  seed: 1,
  ...more,
});
const chat = (content: unknown, more: object = {}) => whole(CHAT, say(content, more));
const text = (answer: Answer, index = 0) =>
  answer.choices[index]?.message?.content ?? answer.choices[index]?.text ?? '';

async function events(path: string, body: object): Promise<Answer[]> {
  const response = await ask(path, { ...body, stream: true });
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  const lines = (await response.text()).split('\n\n');
  expect(lines.slice(-2)).toEqual(['data: [DONE]', '']);
  return lines.slice(0, -2).map((line) => JSON.parse(line.replace(/^data: /, '')));
}

test('the same seed and request give the same text, another seed or prompt another', async () => {
  const first = text(await chat('Hello'));
  expect(text(await chat('Hello'))).toBe(first);
  expect(text(await chat('Hello', { seed: 2 }))).not.toBe(first);
  expect(text(await chat('Hello', { seed: undefined }))).not.toBe(text(await chat('Hello', { seed: undefined })));
  const greedy = await Promise.all(
    ['Hello', 'Hello!', 'What is the capital of France?', 'ping', '1'].map((prompt) =>
      chat(prompt, { temperature: 0 }),
    ),
  );
  expect(new Set(greedy.map((answer) => text(answer))).size).toBe(5);
});

test('answers are readable words with punctuation, of plausible length, and end by themselves', async () => {
  const spoken = new Set(
    [
      words.DETERMINERS,
      words.ADJECTIVES,
      words.NOUNS,
      words.VERBS,
      words.ADVERBS,
      words.OPENERS,
      words.PREPOSITIONS,
      words.CONJUNCTIONS,
      words.PRONOUNS,
    ]
      .flat()
      .map((word) => word.toLowerCase()),
  );
  const prompts = Array.from({ length: 24 }, (_, i) => `Question ${i}: what about ${words.NOUNS[i * 5]}?`);
  const answers = await Promise.all(
    prompts.map((prompt, i) => chat(prompt, { seed: i, temperature: [0, 0.7, 1][i % 3] })),
  );
  for (const answer of answers) {
    expect(text(answer)).toMatch(/^[A-Za-z]+(([,;:.!?])? [A-Za-z]+)*[.!?]?$/);
    for (const word of text(answer).match(/[A-Za-z]+/g) ?? []) expect(spoken).toContain(word.toLowerCase());
  }
  const ended = answers.filter((answer) => answer.choices[0]?.finish_reason === 'stop');
  expect(ended.length).toBeGreaterThanOrEqual(22);
  const lengths = answers.map((answer) => answer.usage?.completion_tokens ?? 0).sort((a, b) => a - b);
  expect(lengths[12]).toBeGreaterThan(15);
  expect(lengths[12]).toBeLessThan(100);
  const used = answers.flatMap((answer) => text(answer).match(/[A-Za-z]+/g) ?? []);
  expect(new Set(used).size / used.length).toBeGreaterThan(0.2);
});

test('a chat answer has the shape of OpenAI', async () => {
  const answer = await chat([{ type: 'text', text: 'Hello' }], {
    tools: [{ type: 'function', function: { name: 'f' } }],
    unheard_of: { of: 1 },
  });
  expect(answer).toMatchObject({
    id: expect.stringMatching(/^chatcmpl-/),
    object: 'chat.completion',
    created: expect.any(Number),
    model: 'countersign-demo',
    system_fingerprint: expect.stringMatching(/^fp_/),
    choices: [
      { index: 0, message: { role: 'assistant', content: text(await chat('Hello')), refusal: null }, logprobs: null },
    ],
  });
  const { prompt_tokens = 0, completion_tokens = 0, total_tokens } = answer.usage ?? {};
  expect(prompt_tokens).toBeGreaterThan(2);
  expect(total_tokens).toBe(prompt_tokens + completion_tokens);
});

test('max_tokens ends with length and a prefix, a stop text with stop and what came before it', async () => {
  const full = text(await chat('Hello', { max_tokens: 30 }));
  const short = await chat('Hello', { max_completion_tokens: 5 });
  expect(short.choices[0]?.finish_reason).toBe('length');
  expect(short.usage?.completion_tokens).toBe(5);
  expect(full.startsWith(text(short))).toBe(true);

  // A stop text that begins in the middle of one word and ends in the middle of the next.
  const stop = full.slice(10, 18);
  for (const streamed of [false, true]) {
    const body = say('Hello', { stop: ['never said', stop] });
    const said = streamed
      ? (await events(CHAT, body)).map(({ choices }) => choices[0]?.delta.content ?? '').join('')
      : text(await whole(CHAT, body));
    expect(said).toBe(full.slice(0, full.indexOf(stop)));
  }
  expect((await chat('Hello', { stop })).choices[0]?.finish_reason).toBe('stop');
});

test('a chat stream begins with the role, gives a token an event, then the reason, then usage when asked', async () => {
  const answer = await chat('Hello');
  const all = await events(CHAT, say('Hello', { stream_options: { include_usage: true } }));
  expect(all[0]?.choices[0]).toEqual({
    index: 0,
    delta: { role: 'assistant', content: '', refusal: null },
    logprobs: null,
    finish_reason: null,
  });
  const contents = all.slice(1, -2);
  expect(contents).toHaveLength(answer.usage?.completion_tokens ?? 0);
  expect(contents.map(({ choices }) => choices[0]?.delta.content).join('')).toBe(text(answer));
  expect(contents.every(({ choices, usage }) => choices[0]?.finish_reason === null && usage === null)).toBe(true);
  expect(all.at(-2)?.choices).toEqual([
    { index: 0, delta: {}, logprobs: null, finish_reason: answer.choices[0]?.finish_reason },
  ]);
  expect(all.at(-1)).toMatchObject({ object: 'chat.completion.chunk', choices: [], usage: answer.usage });
  expect(new Set(all.map(({ id }) => id)).size).toBe(1);
  expect((await events(CHAT, say('Hello'))).every((event) => !('usage' in event))).toBe(true);
});

test('logprobs are those of a distribution, one a token, the best first', async () => {
  const answer = await chat('Hello', { temperature: 0, logprobs: true, top_logprobs: 20, max_tokens: 20 });
  const content = answer.choices[0]?.logprobs.content;
  expect(content.map(({ token }: { token: string }) => token).join('')).toBe(text(answer));
  for (const { token, logprob, bytes, top_logprobs } of content) {
    expect(new TextDecoder().decode(Uint8Array.from(bytes))).toBe(token);
    const probabilities: number[] = top_logprobs.map((top: { logprob: number }) => Math.exp(top.logprob));
    expect(probabilities).toEqual(probabilities.toSorted((a, b) => b - a));
    expect(probabilities.reduce((a, b) => a + b)).toBeLessThanOrEqual(1 + 1e-6);
    expect(top_logprobs[0]).toMatchObject({ token, logprob });
  }
  const streamed = await events(
    CHAT,
    say('Hello', { temperature: 0, logprobs: true, top_logprobs: 20, max_tokens: 20 }),
  );
  expect(streamed.flatMap(({ choices }) => choices[0]?.logprobs?.content ?? [])).toEqual(content);
});

test('n choices differ, are counted together and stream side by side', async () => {
  const answer = await chat('Hello', { n: 3, max_tokens: 12 });
  const texts = answer.choices.map((_, i) => text(answer, i));
  expect(new Set(texts).size).toBe(3);
  const all = await events(CHAT, say('Hello', { n: 3, max_tokens: 12, stream_options: { include_usage: true } }));
  const folded = ['', '', ''];
  for (const { choices } of all) for (const { index, delta } of choices) folded[index] += delta.content ?? '';
  expect(folded).toEqual(texts);
  expect(all.at(-1)?.usage).toEqual(answer.usage);
});

test('bias and penalties change what is said', async () => {
  const token = engine.model.vocabulary.by_text.get(' lantern') ?? -1;
  expect(text(await chat('Hello', { logit_bias: { [token]: 100 }, max_tokens: 3 }))).toBe(' lantern lantern lantern');
  const varied = await chat('Hello', {
    logit_bias: { [token]: 30 },
    presence_penalty: 2,
    frequency_penalty: 2,
    min_tokens: 40,
    max_tokens: 40,
  });
  const plain = await chat('Hello', { logit_bias: { [token]: 30 }, min_tokens: 40, max_tokens: 40 });
  const count = (answer: Answer) => text(answer).split(' lantern').length;
  expect(count(varied)).toBeLessThan(count(plain));
  expect(text(await chat('Hello', { top_p: 1e-9, seed: 5 }))).toBe(text(await chat('Hello', { temperature: 0 })));
});

test('completions take a text, texts or tokens, continue it, and echo it', async () => {
  const ask = (prompt: unknown, more: object = {}) =>
    whole(COMPLETIONS, { prompt, seed: 1, max_tokens: 10, temperature: 0, ...more });
  const one = await ask('Once upon a time');
  expect(one).toMatchObject({
    id: expect.stringMatching(/^cmpl-/),
    object: 'text_completion',
    choices: [{ index: 0, logprobs: null }],
  });
  const ids = [...(await import('../../demo/engine/tokenizer.ts')).encode(engine.model.vocabulary, 'Once upon a time')];
  expect(text(await ask(ids))).toBe(text(one));
  expect(one.usage?.prompt_tokens).toBe(ids.length);
  const two = await ask(['Once upon a time', 'The river'], { n: 2 });
  expect(two.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(text(two)).toBe(text(one));
  expect(text(two, 2)).not.toBe(text(one));
  const streamed = await events(COMPLETIONS, { prompt: 'Once upon a time', seed: 1, max_tokens: 10, temperature: 0 });
  expect(streamed.map(({ choices }) => choices[0]?.text).join('')).toBe(text(one));
  expect(streamed.at(-1)?.choices[0]).toEqual({
    text: '',
    index: 0,
    logprobs: null,
    finish_reason: one.choices[0]?.finish_reason,
  });

  const echoed = await ask('Once upon a time', { echo: true, logprobs: 2 });
  expect(text(echoed)).toBe(`Once upon a time${text(one)}`);
  const { tokens, token_logprobs, top_logprobs, text_offset } = echoed.choices[0]?.logprobs ?? {};
  expect(tokens.join('')).toBe(text(echoed));
  expect(token_logprobs[0]).toBeNull();
  expect(token_logprobs.slice(1).every((logprob: number) => logprob <= 0)).toBe(true);
  expect(top_logprobs[ids.length][tokens[ids.length]]).toBe(token_logprobs[ids.length]);
  expect(tokens.map((token: string, i: number) => text(echoed).startsWith(token, text_offset[i])).every(Boolean)).toBe(
    true,
  );
});

test('token ids come whole and streamed, with those that a stop text cut away and the end token, and decode to the text', async () => {
  const tokenized = await whole('/tokenize', { messages: [{ role: 'user', content: 'Hello' }] });
  const { tokens, count } = tokenized as unknown as { tokens: number[]; count: number };
  expect(count).toBe(tokens.length);
  const decoded = async (ids: number[]) =>
    ((await whole('/detokenize', { tokens: ids })) as unknown as { prompt: string }).prompt;
  const full = text(await chat('Hello', { temperature: 0 }));
  const stop = full.slice(10, 18);
  for (const [more, end] of [
    [{}, '<|end|>'],
    [{ max_tokens: 5 }, ''],
    [{ stop }, null],
  ] as const) {
    const body = say('Hello', { temperature: 0, return_token_ids: true, ...more });
    // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
    const one: any = await whole(CHAT, body);
    const [{ token_ids: ids }] = one.choices;
    expect(one.prompt_token_ids).toEqual(tokens);
    const said = await decoded(ids);
    if (end === null) expect([said.startsWith(text(one)), said.includes(stop)]).toEqual([true, true]);
    else expect(said).toBe(text(one) + end);
    // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
    const streamed: any[] = await events(CHAT, body);
    expect(streamed[0].prompt_token_ids).toEqual(tokens);
    expect(streamed.flatMap(({ choices }) => choices[0].token_ids ?? [])).toEqual(ids);
    // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
    const completed: any = await whole(COMPLETIONS, { ...body, prompt: tokens, max_tokens: 512, ...more });
    expect([completed.choices[0].prompt_token_ids, completed.choices[0].token_ids]).toEqual([tokens, ids]);
    expect(
      (await events(COMPLETIONS, { ...body, prompt: tokens, max_tokens: 512, ...more })).flatMap(
        // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
        ({ choices }) => (choices[0] as any).token_ids,
      ),
    ).toEqual(ids);
  }
  expect(Object.keys(await chat('Hello'))).not.toContain('prompt_token_ids');
});

test("a prompt's log-probabilities have vLLM's form, and those of an answer's tokens are the ones that it was made from", async () => {
  // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
  const answer: any = await chat('Hello', { logprobs: true, top_logprobs: 0, return_token_ids: true, max_tokens: 8 });
  const [choice] = answer.choices;
  const prompt = [...answer.prompt_token_ids, ...choice.token_ids];
  // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
  const scored: any = await whole(COMPLETIONS, { prompt, max_tokens: 1, prompt_logprobs: 3 });
  const rows = scored.choices[0].prompt_logprobs;
  expect(rows).toHaveLength(prompt.length);
  expect(rows[0]).toBeNull();
  for (const [i, id] of choice.token_ids.entries()) {
    const row = rows[answer.prompt_token_ids.length + i];
    expect(row[id]).toMatchObject({ logprob: choice.logprobs.content[i].logprob, decoded_token: expect.any(String) });
    const ranks = Object.values(row as Record<string, { rank: number }>).map(({ rank }) => rank);
    expect(ranks.filter((rank) => rank <= 3).sort()).toEqual([1, 2, 3]);
    expect(ranks.length).toBe(row[id].rank > 3 ? 4 : 3);
  }
  // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
  const ofChat: any = await chat('Hello', { prompt_logprobs: 3, max_tokens: 1 });
  expect(ofChat.prompt_logprobs).toEqual(rows.slice(0, answer.prompt_token_ids.length));
});

test('what is wrong is named in the shape of OpenAI', async () => {
  const cases: [string, object | string, number, object][] = [
    [CHAT, '{', 400, { code: 'invalid_json', param: null }],
    [CHAT, {}, 400, { param: 'messages' }],
    [CHAT, say('x', { temperature: 3 }), 400, { param: 'temperature' }],
    [COMPLETIONS, { prompt: [99_999] }, 400, { param: 'prompt' }],
    [COMPLETIONS, { prompt: 'x', prompt_logprobs: 21 }, 400, { param: 'prompt_logprobs' }],
    ['/detokenize', { tokens: [99_999] }, 400, { param: 'tokens' }],
    ['/v1/nothing', {}, 404, { code: 'not_found' }],
  ];
  for (const [path, body, status, error] of cases) {
    const response = await ask(path, body);
    expect(response.status).toBe(status);
    expect(((await response.json()) as Answer).error).toMatchObject({
      message: expect.any(String),
      type: 'invalid_request_error',
      ...error,
    });
  }
});

test('the model says what it is', async () => {
  const { data } = (await (await app.request('/v1/models')).json()) as { data: { id: string; description: string }[] };
  expect(data).toHaveLength(1);
  expect(data[0]).toMatchObject({
    id: 'countersign-demo',
    object: 'model',
    description: expect.stringMatching(/random weights.*nonsense/),
  });
  expect(await (await app.request('/v1/models/countersign-demo')).json()).toEqual(data[0]);
  expect((await app.request('/v1/models/other')).status).toBe(404);
  expect((await app.request('/health')).status).toBe(200);
});

test('over HTTP the first event comes at once, and a client that goes ends the generation', async () => {
  let steps = 0;
  const counted = createEngine({ model: engine.model, random_seed: () => 1 });
  const logits = engine.model.weights.head_bias;
  // Each token reads the head's biases once: a proxy of the weights counts them.
  const weights = new Proxy(engine.model.weights, {
    get(target, name) {
      if (name === 'head_bias') steps++;
      return name === 'head_bias' ? logits : Reflect.get(target, name);
    },
  });
  const server = await startEngine({ engines: [{ ...counted, model: { ...engine.model, weights } }] });
  const send = async (stream: boolean) => {
    const leave = new AbortController();
    const sent = fetch(`${server.url}${CHAT}`, {
      method: 'POST',
      signal: leave.signal,
      body: JSON.stringify(say('Hello', { stream, ignore_eos: true, max_tokens: 100_000 })),
    });
    if (stream) {
      const reader = (await sent).body?.getReader();
      const first = await reader?.read();
      expect(new TextDecoder().decode(first?.value)).toContain('"role":"assistant"');
    } else {
      sent.catch(() => undefined);
    }
    while (steps < 5) await new Promise((resolve) => setTimeout(resolve, 5));
    leave.abort();
    await new Promise((resolve) => setTimeout(resolve, 100));
    const then = steps;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(steps).toBe(then);
    steps = 0;
  };
  await send(true);
  await send(false);
  await server.close();
});

test('a long prompt leaves the event loop to others', async () => {
  const long = chat('many words '.repeat(20_000), { max_tokens: 1 });
  let longest_ms = 0;
  let done = false;
  void long.finally(() => {
    done = true;
  });
  const began = performance.now();
  for (let last = began; !done; ) {
    await new Promise((resolve) => setImmediate(resolve));
    longest_ms = Math.max(longest_ms, performance.now() - last);
    last = performance.now();
  }
  expect((await long).usage?.prompt_tokens).toBeGreaterThan(40_000);
  expect(longest_ms).toBeLessThan((performance.now() - began) / 2);
});

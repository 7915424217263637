// The backend that the client tests stand before: the model's name in a request says how it answers.
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { foldPayloads } from '../../proto/stream/fold.ts';
import { answer, DONE, event, type Script } from '../support/backend.ts';
import { formOf, formScripts } from './form-scripts.ts';

export const ANSWER = 'Well met, traveller.';
const PIECES = ['Well', ' met,', ' trav', 'eller.'];
/** In pieces that split inside names and strings, as engines send them. */
const ARGUMENTS = ['{"ci', 'ty":"Pa', 'ris"}'];

/** hello: a text; tools: a call of get_weather; dies: breaks off; tears: breaks off inside an event; endless: never ends; limited: 429. */
export const MODELS = ['hello', 'tools', 'dies', 'tears', 'endless', 'limited'] as const;

/** What an answer was, in the backend's own bytes: the body, or the payloads of its stream. */
export type Sent = { readonly body: string } | { readonly payloads: readonly string[] };

export interface Scripted {
  readonly script: Script;
  /** By the completion's id. */
  readonly sent: Map<string, Sent>;
}

export function scripted(): Scripted {
  const sent = new Map<string, Sent>();
  const forms = formScripts();
  let number = 0;
  const script: Script = async (request, response) => {
    if (formOf(request.url) !== null) return forms.script(request, response);
    const asked = JSON.parse(request.body) as { model: (typeof MODELS)[number]; stream?: boolean };
    const chat = request.url.endsWith('/chat/completions');
    const id = `${chat ? 'chatcmpl' : 'cmpl'}-${++number}`;
    if (asked.model === 'limited')
      return answer(
        '{"error":{"message":"Too many.","type":"rate_limit_error","param":null,"code":"slow_down"}}',
        429,
        {
          'retry-after': '7',
        },
      )(request, response);
    if (asked.stream !== true) {
      if (asked.model === 'dies') return void response.destroy();
      const body = whole(id, chat, asked.model === 'tools');
      sent.set(id, { body });
      return answer(body)(request, response);
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const payloads = chunks(id, chat, asked.model === 'tools').map((chunk) => JSON.stringify(chunk));
    sent.set(id, { payloads });
    for (const [i, payload] of payloads.entries()) {
      if (asked.model === 'dies' && i === 3) return void response.destroy();
      if (asked.model === 'tears' && i === 3)
        return void response.write(event(payload).slice(0, 40), () => response.destroy());
      if (asked.model === 'endless' && i === 2)
        while (!response.destroyed) {
          response.write(event(payload));
          await new Promise((resolve) => setTimeout(resolve, 5)); // the pace of a model, not a wait for anything
        }
      response.write(event(payload));
      await turn();
    }
    response.end(DONE);
  };
  return { script, sent };
}

/** What raw must hold of an answer: its text, and for a stream the digest beside it. */
export function expectedRaw(sent: Sent): { response: string; stream?: { events: number; sha256: string } } {
  if ('body' in sent) return { response: sent.body };
  const hash = createHash('sha256');
  for (const payload of sent.payloads) hash.update(`${payload}\n`);
  return {
    response: foldPayloads(sent.payloads),
    stream: { events: sent.payloads.length, sha256: hash.digest('hex') },
  };
}

const usage = { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 };
const call = (args: string) => ({ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: args } });

function whole(id: string, chat: boolean, tools: boolean): string {
  const base = { id, object: chat ? 'chat.completion' : 'text_completion', created: 1_700_000_000, model: 'scripted' };
  const message = tools
    ? { role: 'assistant', content: null, tool_calls: [call(ARGUMENTS.join(''))] }
    : { role: 'assistant', content: ANSWER };
  const choice = { index: 0, ...(chat ? { message } : { text: ANSWER }), logprobs: null, finish_reason: reason(tools) };
  // White space and 1.0 are what no parser gives back: raw holds the text.
  return JSON.stringify({ ...base, choices: [choice], usage }, null, 1).replace(/\}$/, ', "x_score": 1.0 }');
}

function chunks(id: string, chat: boolean, tools: boolean): object[] {
  const base = { id, object: chat ? 'chat.completion.chunk' : 'text_completion', created: 1_700_000_000 };
  const chunk = (delta: object, finish_reason: string | null = null) => ({
    ...base,
    model: 'scripted',
    choices: [{ index: 0, ...delta, logprobs: null, finish_reason }],
  });
  const last = { ...base, model: 'scripted', choices: [], usage };
  if (!chat) return [...PIECES.map((text) => chunk({ text })), chunk({ text: '' }, 'stop'), last];
  const role = chunk({ delta: { role: 'assistant', content: tools ? null : '' } });
  const pieces = tools
    ? [
        { tool_calls: [{ index: 0, ...call('') }] },
        ...ARGUMENTS.map((text) => ({ tool_calls: [{ index: 0, function: { arguments: text } }] })),
      ]
    : PIECES.map((content) => ({ content }));
  return [role, ...pieces.map((delta) => chunk({ delta })), chunk({ delta: {} }, reason(tools)), last];
}

function reason(tools: boolean): string {
  return tools ? 'tool_calls' : 'stop';
}

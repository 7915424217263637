// The scripted backend's answers of /v1/responses, /v1/messages and /v1/embeddings: the model's name in a request says how it answers.
import type { ServerResponse } from 'node:http';
import { answer, type Script, type Seen } from '../backend.ts';
import {
  functionCallEvents,
  MESSAGE_ID,
  messageBody,
  messageEvents,
  named,
  RESPONSE_ID,
  responseBody,
  responseEvents,
} from '../named-streams.ts';
import { WEATHER } from './driver.ts';

export const FORMS = ['/v1/responses', '/v1/messages', '/v1/embeddings'] as const;
export type Form = (typeof FORMS)[number];

export const FORM_ANSWER = 'Well met, traveller: 1.0 wörld.';
const PIECES = ['Well met,', ' trav', 'eller: 1.0', ' wörld.'];
const ARGUMENTS = ['{"ci', 'ty":"Pa', 'ris"}'];
/** What single precision holds exactly: base64 and decimal digits give the same numbers. */
export const VECTOR = [0.25, -1.5, 2 ** -40, 0];

export function formOf(url: string): Form | null {
  return FORMS.find((form) => form === url.split('?', 1)[0]) ?? null;
}

interface Asked {
  readonly model: string;
  readonly stream?: boolean;
  readonly input?: unknown;
  readonly encoding_format?: string;
}

let number = 0;

/** hello: a text; tools: a call of get_weather, and a text once it was told its output; dies: breaks off. */
export const formScript: Script = (request, response) => {
  const form = formOf(request.url);
  const asked = JSON.parse(request.body) as Asked;
  if (form === '/v1/embeddings') return send(JSON.stringify(embeddings(asked), null, 1), asked, request, response);
  const tools = asked.model === 'tools' && !request.body.includes('"function_call_output"');
  const make = form === '/v1/responses' ? responseOf : messageOf;
  const own = form === '/v1/responses' ? RESPONSE_ID : MESSAGE_ID;
  return send(make(tools, asked.stream === true).replaceAll(own, `${own}${++number}`), asked, request, response);
};

function send(text: string, { model, stream }: Asked, request: Seen, response: ServerResponse): void | Promise<void> {
  if (stream !== true) return model === 'dies' ? void response.destroy() : answer(text)(request, response);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  if (model === 'dies') return void response.write(text.slice(0, text.length / 2), () => response.destroy());
  response.end(text);
}

function responseOf(tools: boolean, stream: boolean): string {
  const events = tools ? functionCallEvents(WEATHER.name, ARGUMENTS) : responseEvents(PIECES);
  if (stream) return events.map(named).join('');
  const call = { type: 'function_call', id: 'item_1', call_id: 'call_1', name: WEATHER.name, status: 'completed' };
  const output = [{ ...call, arguments: ARGUMENTS.join('') }];
  return JSON.stringify(tools ? responseBody('', { output }) : responseBody(FORM_ANSWER), null, 1);
}

function messageOf(tools: boolean, stream: boolean): string {
  if (stream)
    return messageEvents(PIECES, tools ? ARGUMENTS : [])
      .map(named)
      .join('');
  const text = { type: 'text', text: FORM_ANSWER };
  const use = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: JSON.parse(ARGUMENTS.join('')) };
  return JSON.stringify(tools ? messageBody([text, use], 'tool_use') : messageBody([text]), null, 1);
}

function embeddings({ input, encoding_format }: Asked): object {
  const count = Array.isArray(input) ? input.length : 1;
  const base64 = Buffer.from(new Float32Array(VECTOR).buffer).toString('base64');
  const embedding = encoding_format === 'base64' ? base64 : VECTOR;
  const data = Array.from({ length: count }, (_, index) => ({ object: 'embedding', index, embedding }));
  return { object: 'list', data, model: 'scripted', usage: { prompt_tokens: 3, total_tokens: 3 } };
}

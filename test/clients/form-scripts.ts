// The scripted backend of /v1/responses, /v1/messages and /v1/embeddings: the model's name in a request says how it answers.
import type { ServerResponse } from 'node:http';
import { answer, type Script, type Seen } from '../support/backend.ts';
import {
  functionCallEvents,
  MESSAGE_ID,
  messageBody,
  messageEvents,
  named,
  RESPONSE_ID,
  responseEvents,
} from '../support/named-streams.ts';
import { WEATHER } from './driver.ts';

export const FORMS = ['/v1/responses', '/v1/messages', '/v1/embeddings'] as const;
export type Form = (typeof FORMS)[number];

export const FORM_ANSWER = 'Well met, traveller: 1.0 wörld.';
const PIECES = ['Well met,', ' trav', 'eller: 1.0', ' wörld.'];
/** The arguments of the tool call. */
export const FORM_CALL = '{"city":"Paris"}';
/** In pieces that split inside names and strings, as engines send them. */
const ARGUMENTS = ['{"ci', 'ty":"Pa', 'ris"}'];

/** The vector of the input number `index`: single precision holds it exactly, so that base64 and decimal digits give the same numbers. */
export const vectorOf = (index: number): readonly number[] => [0.25, -1.5, 2 ** -40, index];

export function formOf(url: string): Form | null {
  return FORMS.find((form) => form === url.split('?', 1)[0]) ?? null;
}

export interface FormScripts {
  /** hello: a text; tools: a call of get_weather, and a text once it was told its output; dies: breaks off. */
  readonly script: Script;
  /** What was answered, in order: the body, or the text of the stream. */
  readonly answers: { readonly text: string; readonly streamed: boolean }[];
}

interface Asked {
  readonly model: string;
  readonly stream?: boolean;
  readonly input?: unknown;
  readonly encoding_format?: string;
}

export function formScripts(): FormScripts {
  const answers: FormScripts['answers'] = [];
  let number = 0;
  const script: Script = (request, response) => {
    const asked = JSON.parse(request.body) as Asked;
    const tools = asked.model === 'tools' && !request.body.includes('"function_call_output"');
    const streamed = asked.stream === true;
    const text = numbered(textOf(formOf(request.url), tools, asked), ++number);
    answers.push({ text, streamed });
    return send(text, asked, request, response);
  };
  return { script, answers };
}

/** With ids that no other answer has. */
function numbered(text: string, number: number): string {
  const id = (found: string) => `${found.slice(0, -1)}_${number}"`;
  return text.replace(new RegExp(`"(?:${RESPONSE_ID}|${MESSAGE_ID}|call_1|item_1)"`, 'g'), id);
}

function send(text: string, { model, stream }: Asked, request: Seen, response: ServerResponse): void | Promise<void> {
  if (stream !== true) return model === 'dies' ? void response.destroy() : answer(text)(request, response);
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  if (model === 'dies') return void response.write(text.slice(0, text.length / 2), () => response.destroy());
  for (const event of text.split(/(?<=\n\n)/)) response.write(event);
  response.end();
}

function textOf(form: Form | null, tools: boolean, asked: Asked): string {
  if (form === '/v1/embeddings') return wholeText(embeddings(asked));
  const events = form === '/v1/responses' ? responseOf(tools) : messageOf(tools);
  if (asked.stream === true) return events.map(named).join('');
  return wholeText(form === '/v1/responses' ? events.at(-1)?.response : wholeMessage(tools));
}

/** White space and 1.0 are what no parser gives back: raw holds the text. */
const wholeText = (body: unknown): string => JSON.stringify(body, null, 1).replace(/\}$/, ', "x_score": 1.0 }');

const responseOf = (tools: boolean) => (tools ? functionCallEvents(WEATHER.name, ARGUMENTS) : responseEvents(PIECES));

const messageOf = (tools: boolean) => messageEvents(PIECES, tools ? ARGUMENTS : [], WEATHER.name);

function wholeMessage(tools: boolean): object {
  const text = { type: 'text', text: FORM_ANSWER };
  const use = { type: 'tool_use', id: 'toolu_1', name: WEATHER.name, input: JSON.parse(FORM_CALL) };
  return tools ? messageBody([text, use], 'tool_use') : messageBody([text]);
}

function embeddings({ input, encoding_format }: Asked): object {
  const count = Array.isArray(input) ? input.length : 1;
  const data = Array.from({ length: count }, (_, index) => {
    const base64 = Buffer.from(new Float32Array(vectorOf(index)).buffer).toString('base64');
    return { object: 'embedding', index, embedding: encoding_format === 'base64' ? base64 : vectorOf(index) };
  });
  return { object: 'list', data, model: 'scripted', usage: { prompt_tokens: 3, total_tokens: 3 } };
}

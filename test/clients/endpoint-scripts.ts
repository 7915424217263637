// The backend of the clients of /v1/responses, /v1/messages and /v1/embeddings: the model's name in a request says how it answers.
import type { Script } from '../backend.ts';
import {
  functionCallEvents,
  MESSAGE_ID,
  messageBody,
  messageEvents,
  named,
  RESPONSE_ID,
  responseEvents,
} from '../named-streams.ts';

export const ANSWER = 'Well met, traveller.';
export const CALL = '{"city":"Paris"}';
export const VECTORS = [
  [0.25, -0.5],
  [0.125, 1],
];
const PIECES = ['Well', ' met,', ' trav', 'eller.'];
/** In pieces that split inside names and strings, as engines send them. */
const ARGUMENTS = ['{"ci', 'ty":"Pa', 'ris"}'];

export interface EndpointScripts {
  readonly script: Script;
  /** What was answered, in order: the body, or the text of the stream. */
  readonly answers: { readonly path: string; readonly text: string; readonly streamed: boolean }[];
}

interface Asked {
  readonly model: string;
  readonly stream?: boolean;
  readonly input?: unknown;
  readonly encoding_format?: string;
}

export function endpointScripts(): EndpointScripts {
  const answers: EndpointScripts['answers'] = [];
  let number = 0;
  const script: Script = (request, response) => {
    const path = request.url.split('?', 1)[0] ?? '';
    const asked = JSON.parse(request.body) as Asked;
    const calls = asked.model === 'tools' && !request.body.includes('"function_call_output"');
    const streamed = asked.stream === true;
    const id = `_${++number}x`;
    const text = (streamed ? streamOf(path, calls) : wholeOf(path, calls, asked))
      .replaceAll(`"${RESPONSE_ID}"`, `"resp${id}"`)
      .replaceAll(`"${MESSAGE_ID}"`, `"msg${id}"`)
      .replaceAll('"call_1"', `"call${id}"`)
      .replaceAll('"item_1"', `"item${id}"`);
    answers.push({ path, text, streamed });
    response.writeHead(200, { 'content-type': streamed ? 'text/event-stream; charset=utf-8' : 'application/json' });
    if (!streamed) return void response.end(text);
    for (const event of text.split(/(?<=\n\n)/)) response.write(event);
    response.end();
  };
  return { script, answers };
}

const responses = (calls: boolean) => (calls ? functionCallEvents('get_weather', ARGUMENTS) : responseEvents(PIECES));

const messages = (calls: boolean) => (calls ? messageEvents([], ARGUMENTS) : messageEvents(PIECES));

function streamOf(path: string, calls: boolean): string {
  return (path === '/v1/messages' ? messages(calls) : responses(calls))
    .map(named)
    .join('')
    .replaceAll('"weather"', '"get_weather"');
}

function wholeOf(path: string, calls: boolean, asked: Asked): string {
  if (path === '/v1/embeddings') return JSON.stringify(embeddings(asked.encoding_format === 'base64'));
  const tool = { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: JSON.parse(CALL) };
  const body =
    path === '/v1/responses'
      ? responses(calls).at(-1)?.response
      : messageBody([calls ? tool : { type: 'text', text: ANSWER }], calls ? 'tool_use' : 'end_turn');
  // White space and 1.0 are what no parser gives back: raw holds the text.
  return JSON.stringify(body, null, 1).replace(/\}$/, ', "x_score": 1.0 }');
}

function embeddings(base64: boolean) {
  const data = VECTORS.map((vector, index) => ({
    object: 'embedding',
    index,
    embedding: base64 ? Buffer.from(new Float32Array(vector).buffer).toString('base64') : vector,
  }));
  return { object: 'list', data, model: 'scripted', usage: { prompt_tokens: 2, total_tokens: 2 } };
}

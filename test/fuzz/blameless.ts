// A backend that is never at fault, whatever it is asked: what is a 5xx then is the gateway's own.
import { answer, chatBody, chatStream, type Script } from '../support/backend.ts';

/** The shapes of 4xx that are met in the wild. */
const ERRORS = [
  '{"detail":[{"loc":["body","n"],"msg":"bad","input":"x"}]}',
  '{"error":"no"}',
  '<html>',
  '',
  '{"object":"error","message":"m","code":400}',
];

const TEXT = JSON.stringify({
  id: 'cmpl-1',
  object: 'text_completion',
  created: 1_700_000_000,
  model: 'scripted',
  choices: [{ index: 0, text: 'Hello.', logprobs: null, finish_reason: 'stop' }],
});

/** Answers, streams where it is asked to, and with `refusing` refuses one request in ten. */
export function blameless(refusing: boolean): Script {
  return (request, response) => {
    const { length } = request.body;
    if (refusing && length % 10 === 9)
      return answer(ERRORS[length % ERRORS.length] ?? '', 400 + (length % 30))(request, response);
    if (wantsStream(request.body)) return chatStream(['a', 'b'])(request, response);
    return answer(request.url.startsWith('/v1/completions') ? TEXT : chatBody('Hello.'))(request, response);
  };
}

function wantsStream(body: string): boolean {
  try {
    return (JSON.parse(body) as { stream?: unknown } | null)?.stream === true;
  } catch {
    return false;
  }
}

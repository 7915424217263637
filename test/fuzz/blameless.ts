// A backend that is never at fault, whatever it is asked: what is a 5xx then is the gateway's own.
import { answer, chatAnswer, chatStream, type Script } from '../backend.ts';

/** The shapes of 4xx that are met in the wild. */
const ERRORS = [
  '{"detail":[{"loc":["body","n"],"msg":"bad","input":"x"}]}',
  '{"error":"no"}',
  '<html>',
  '',
  '{"object":"error","message":"m","code":400}',
];

/** Answers, streams where it is asked to, and with `refusing` refuses one request in ten. */
export function blameless(refusing: boolean): Script {
  return (request, response) => {
    const { length } = request.body;
    if (refusing && length % 10 === 9)
      return answer(ERRORS[length % ERRORS.length] ?? '', 400 + (length % 30))(request, response);
    return (wantsStream(request.body) ? chatStream(['a', 'b']) : chatAnswer('Hello.'))(request, response);
  };
}

function wantsStream(body: string): boolean {
  try {
    return (JSON.parse(body) as { stream?: unknown } | null)?.stream === true;
  } catch {
    return false;
  }
}

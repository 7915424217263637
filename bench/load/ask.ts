// From a job to bytes on the wire: the request, what is expected of its answer, and who keeps count of wrong ones.
import { wholeAnswer } from '../answer.ts';
import type { Aim, Judged } from '../jobs.ts';
import { requestBody, type Scene, USER, USER_DIGITS } from '../scene.ts';
import type { Expected } from './check.ts';

/** Gives the bytes of one request after the other. With tee no two are equal: nobody's signature serves another. */
export function requestSource(aim: Aim, scene: Scene): () => Buffer {
  const bytes = requestBytes(aim, scene);
  if (!aim.tee) return () => bytes;
  const at = bytes.indexOf(`"user":"${USER}`) + `"user":"${USER}`.length;
  return () => {
    const own = Buffer.from(bytes);
    own.write(String(numbered++).padStart(USER_DIGITS, '0'), at, 'latin1');
    return own;
  };
}

let numbered = 1;

export function requestBytes(aim: Aim, scene: Scene): Buffer {
  const body = requestBody(scene, aim.tee, aim.batch);
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:${aim.port}\r\ncontent-type: application/json\r\naccept: application/json\r\nuser-agent: bench\r\n${aim.headers}content-length: ${Buffer.byteLength(body)}\r\n\r\n`;
  return Buffer.from(head + body);
}

export function expectation(aim: Aim, scene: Scene): Expected {
  return {
    body: scene.kind === 'whole' && aim.exact ? wholeAnswer(scene.bytes) : null,
    chunks: 'chunks' in scene ? scene.chunks : 1,
    attestation: aim.tee,
    ends: ['"finish_reason":"stop"', 'data: [DONE]'],
  };
}

/** Counts wrong answers and remembers the first. */
export class Judge {
  #wrong = 0;
  #reason: string | null = null;

  take(wrong: string | null): void {
    if (wrong === null) return;
    this.#wrong++;
    this.#reason ??= wrong;
  }

  get verdict(): Judged {
    return { wrong: this.#wrong, reason: this.#reason };
  }
}

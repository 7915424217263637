// A scripted backend: each test says what it answers, byte for byte, and looks at what it was asked.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  /** Set when the gateway ended the request before the answer was complete. */
  aborted_ms: number | null;
}

export type Script = (request: Seen, response: ServerResponse) => void | Promise<void>;

export interface Backend {
  /** For BACKEND_URL. */
  readonly url: string;
  readonly seen: Seen[];
  script: Script;
  /** The answer for /v1/models, neither scripted nor recorded; null leaves it to the script. */
  models: string | null;
  /** As if it had ended; `start` brings it back on the same port. */
  stop(): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
}

export async function startBackend(script: Script = chatAnswer('Hello.')): Promise<Backend> {
  const seen: Seen[] = [];
  // It takes longer headers than the gateway does: what it refuses is a test's choice.
  const server = createServer({ maxHeaderSize: 64 * 1024 }, (incoming, response) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      const request: Seen = {
        method: incoming.method ?? '',
        url: incoming.url ?? '',
        headers: incoming.headers,
        body: Buffer.concat(chunks).toString('utf8'),
        aborted_ms: null,
      };
      if (request.method === 'GET' && request.url === '/v1/models' && backend.models !== null) {
        response.writeHead(200, { 'content-type': 'application/json' }).end(backend.models); // what /health asks
        return;
      }
      seen.push(request);
      response.on('close', () => {
        if (!response.writableFinished) request.aborted_ms = performance.now();
      });
      void Promise.resolve(backend.script(request, response)).catch(() => response.destroy());
    });
  });
  const listen = (port: number) => new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const stop = async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  const backend: Backend = {
    url: `http://127.0.0.1:${port}/v1`,
    seen,
    script,
    models: '{"object":"list","data":[{"id":"scripted","object":"model"}]}',
    stop,
    start: () => listen(port),
    close: stop,
  };
  return backend;
}

/** Sends exactly this body. */
export function answer(body: string | Buffer, status = 200, headers: Record<string, string> = {}): Script {
  return (_request, response) => {
    response
      .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers })
      .end(body);
  };
}

export function chatBody(content: string, id = 'chatcmpl-1'): string {
  return JSON.stringify({
    id,
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'scripted',
    choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'stop' }],
    usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
  });
}

export function chatAnswer(content: string, id?: string): Script {
  return answer(chatBody(content, id));
}

/** Sends these pieces as an event stream, one write each, `pause_ms` between them; null breaks the connection. */
export function stream(pieces: readonly (string | Buffer | null)[], pause_ms = 0): Script {
  return async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
    response.flushHeaders();
    for (const piece of pieces) {
      if (response.destroyed) return;
      if (piece === null) return void response.destroy();
      response.write(piece);
      if (pause_ms > 0) await new Promise((resolve) => setTimeout(resolve, pause_ms));
      else await new Promise(setImmediate);
    }
    response.end();
  };
}

export function event(payload: unknown): string {
  return `data: ${typeof payload === 'string' ? payload : JSON.stringify(payload)}\n\n`;
}

const base = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'scripted' };

export function delta(content: string, index = 0): string {
  return event({ ...base, choices: [{ index, delta: { content }, logprobs: null, finish_reason: null }] });
}

export function role(index = 0): string {
  return event({
    ...base,
    choices: [{ index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }],
  });
}

export function finish(reason = 'stop', index = 0): string {
  return event({ ...base, choices: [{ index, delta: {}, logprobs: null, finish_reason: reason }] });
}

export function usage(): string {
  return event({ ...base, choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } });
}

export const DONE = event('[DONE]');

/** A plain streamed answer. */
export function chatStream(words: readonly string[], pause_ms = 0): Script {
  return stream([role(), ...words.map((word) => delta(word)), finish(), usage(), DONE], pause_ms);
}

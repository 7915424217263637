// What the tests see of an answer: its bytes as they came, over Node's own HTTP client, with nothing normalised in between.
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';

const eachItsOwn = new Agent({ keepAlive: false });

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape
  json(): any;
  /** The `data:` payloads of an event stream. */
  payloads(): string[];
  /** False when the connection broke before the answer's end. */
  readonly complete: boolean;
}

export interface Ask {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
  /** Sends the body without its length. */
  readonly chunked?: boolean;
  readonly signal?: AbortSignal;
  /** Whose connections are used; otherwise each request has its own. */
  readonly agent?: Agent;
  /** Called with each piece as it arrives; return false to leave. */
  readonly onData?: (chunk: Buffer, received_ms: number) => unknown;
}

export function ask(
  url: string,
  { method = 'POST', headers = {}, body, chunked = false, signal, agent = eachItsOwn, onData }: Ask = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined || chunked ? {} : { 'content-length': Buffer.byteLength(body) };
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const outgoing = request(
      url,
      { ...(signal === undefined ? {} : { signal }), method, agent, headers: { ...type, ...length, ...headers } },
      (incoming) => {
        const chunks: Buffer[] = [];
        let left = false;
        const done = (complete: boolean) => {
          const all = Buffer.concat(chunks);
          const text = all.toString('utf8');
          resolve({
            status: incoming.statusCode ?? 0,
            headers: incoming.headers,
            body: all,
            text,
            json: () => JSON.parse(text),
            payloads: () => payloadsOf(text),
            complete: complete && !left,
          });
        };
        incoming.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          if (onData?.(chunk, performance.now()) === false) {
            left = true;
            outgoing.destroy();
          }
        });
        incoming.on('end', () => done(true));
        incoming.on('error', () => done(false));
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

export function payloadsOf(stream: string): string[] {
  return stream
    .split(/\r\n\r\n|\n\n|\r\r/)
    .filter((event) => event.startsWith('data:'))
    .map((event) => event.replace(/^data: ?/, ''));
}

export const CHAT = { model: 'scripted', messages: [{ role: 'user', content: 'Hi' }] };

export function chat(
  url: string,
  body: object | string,
  headers: OutgoingHttpHeaders = {},
  onData?: Ask['onData'],
): Promise<Answer> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return ask(`${url}/v1/chat/completions`, { body: text, headers, ...(onData === undefined ? {} : { onData }) });
}

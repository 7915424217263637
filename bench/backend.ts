// The backend's process: answers each request by the scene that its model names.
import { createServer, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { serve } from './processes.ts';
import { ANSWER, END, now_us, parseScene, ROLE, type Scene, stamped } from './wire.ts';

const JSON_TYPE = 'application/json';
/** One gateway asks whether a worker is well, and which model it has, before it uses it. */
const MODELS = '{"object":"list","data":[{"id":"bench","object":"model"}],"model_path":"bench","status":"ok"}';

interface Paced {
  readonly response: ServerResponse;
  readonly period_us: number;
  due_us: number;
  left: number;
}
const paced = new Set<Paced>();
const open = new Set<ServerResponse>();

const server = createServer(async (request, response) => {
  const body = await text(request).catch(() => '');
  const model = /"model":\s*"([^"]+)"/.exec(body)?.[1];
  const scene = model === undefined ? null : parseScene(model);
  const whole = request.method === 'GET' ? MODELS : scene?.kind === 'whole' ? ANSWER : null;
  if (whole !== null) {
    response.writeHead(200, { 'content-type': JSON_TYPE, 'content-length': Buffer.byteLength(whole) }).end(whole);
  } else if (scene === null)
    response.writeHead(404, { 'content-type': JSON_TYPE }).end('{"error":{"message":"no scene"}}');
  else stream(response, scene);
});
server.keepAliveTimeout = 600_000;
server.requestTimeout = 0;

function stream(response: ServerResponse, scene: Scene): void {
  const start_us = now_us();
  open.add(response);
  response.once('close', () => open.delete(response));
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  response.write(ROLE + stamped(start_us));
  if (scene.kind !== 'paced') return;
  const period_us = 1e6 / scene.rate;
  paced.add({ response, period_us, due_us: start_us + period_us, left: scene.chunks - 1 });
}

/** One clock for all streams. */
setInterval(() => {
  for (const one of paced) {
    const now = now_us();
    if (now < one.due_us && !one.response.destroyed) continue;
    one.due_us += one.period_us;
    if (one.response.destroyed || one.left === 0) paced.delete(one);
    if (one.left-- > 0) one.response.write(stamped(now));
    else one.response.end(END);
  }
}, 1);

await new Promise<void>((resolve) => server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, resolve));

const functions = {
  port: () => (server.address() as { port: number }).port,
  /** Ends what nobody ended: one target's leftovers never run into the next one's time. */
  endStreams(): void {
    for (const response of open) response.destroy();
  },
};
export type Backend = typeof functions;
serve(functions);

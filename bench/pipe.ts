// The simplest honest proxy in Node: node:http in, node:http out with kept connections, pipe. The yardstick of the ratios.
import { Agent, createServer, request } from 'node:http';

const { hostname: host, port } = new URL(process.env.BACKEND_URL ?? 'http://127.0.0.1:8000/v1');
const agent = new Agent({ keepAlive: true });

const server = createServer((incoming, outgoing) => {
  const { method, url: path, headers } = incoming;
  const onward = request({ agent, host, port, method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(outgoing);
    answer.on('error', () => outgoing.destroy());
  });
  onward.on('error', () => {
    if (outgoing.headersSent) outgoing.destroy();
    else outgoing.writeHead(502).end();
  });
  outgoing.on('close', () => {
    if (!outgoing.writableFinished) onward.destroy();
  });
  incoming.pipe(onward);
});
server.listen(Number(process.env.PORT), '127.0.0.1');

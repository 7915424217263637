// A gateway that signs each answer with a key in its own memory: what a receipt costs that proves no hardware. The yardstick of `--attested`.
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { Agent, createServer, request } from 'node:http';
import { buffer } from 'node:stream/consumers';

const backend = new URL(process.env.BACKEND_URL ?? 'http://127.0.0.1:8000/v1');
const agent = new Agent({ keepAlive: true });
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
/** The load generator looks for evidence in each answer. */
const NO_EVIDENCE = [{ arch: 'none' }];

const server = createServer(async (incoming, outgoing) => {
  const asked = await buffer(incoming);
  const onward = request(
    { agent, host: backend.hostname, port: backend.port, method: incoming.method, path: incoming.url },
    async (answer) => {
      const body = (await buffer(answer)).toString();
      const raw = `{"request":${asked},"response":${body},"timestamp":${Math.floor(Date.now() / 1000)}}`;
      const nonce = createHash('sha256').update(raw).digest();
      const token = sign('sha384', nonce, privateKey).toString('base64url');
      const attestation = JSON.stringify({ raw, nonce: nonce.toString('hex'), token, evidence: NO_EVIDENCE });
      outgoing.writeHead(answer.statusCode ?? 502, { 'content-type': 'application/json' });
      outgoing.end(`${body.slice(0, body.lastIndexOf('}'))},"attestation":${attestation}}`);
    },
  );
  onward.on('error', () => outgoing.destroy());
  onward.setHeader('content-type', 'application/json');
  onward.setHeader('content-length', asked.length);
  onward.end(asked);
});
server.listen(Number(process.env.PORT), '127.0.0.1');

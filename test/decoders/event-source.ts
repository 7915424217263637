// EventSource of a real Chromium: a page that opens the answers of a server on the loopback interface one after the other.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { chromium } from 'playwright-core';
import { CHROMIUM_ARGS } from '../browser/page.ts';
import type { Answer, Decoder, Reading } from './reading.ts';

/** As many connections as Chromium opens to one server. */
const CONCURRENCY = 6;
/** What a program does with the texts is written as OpenAI's clients do it. An EventSource tells no end from a broken connection. */
const PAGE = `<!doctype html><title>decoders</title><script>
function readOne(id) {
  return new Promise((resolve) => {
    const source = new EventSource('/' + id);
    const read = [];
    const end = (threw) => { source.close(); resolve({ read, threw }); };
    source.onerror = () => end('error event');
    source.onmessage = ({ data }) => {
      if (source.readyState === EventSource.CLOSED) return;
      if (data === '[DONE]') return end(null);
      read.push(data);
      try {
        if (JSON.parse(data)?.error) end('the server sent an error');
      } catch (error) {
        end(error.name);
      }
    };
  });
}
async function readAll(ids) {
  const readings = [];
  const waiting = ids.map((id, i) => [id, i]);
  const work = async () => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) readings[one[1]] = await readOne(one[0]);
  };
  await Promise.all(Array.from({ length: ${CONCURRENCY} }, work));
  return readings;
}
</script>`;

export async function eventSource(executablePath: string): Promise<Decoder> {
  const answers = new Map<string, Answer>();
  let next = 0;
  const server = createServer((request, response) => {
    const answer = answers.get((request.url ?? '').slice(1));
    if (answer !== undefined) return void reply(answer, response);
    response.setHeader('content-type', 'text/html').end(PAGE);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const browser = await chromium.launch({ executablePath, args: CHROMIUM_ARGS });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  return {
    name: `EventSource of Chromium ${browser.version()}`,
    gives: 'texts',
    async read(given) {
      const ids = given.map((answer) => {
        const id = `a${next++}`;
        answers.set(id, answer);
        return id;
      });
      const readings = (await page.evaluate(`readAll(${JSON.stringify(ids)})`)) as Reading[];
      answers.clear();
      return readings;
    },
    async close() {
      await browser.close();
      server.closeAllConnections();
      server.close();
    },
  };
}

async function reply({ status, type, pieces, broken }: Answer, response: ServerResponse): Promise<void> {
  // A redirect would lead to the page itself.
  response.writeHead(status, type === '' ? {} : { 'content-type': type });
  for (const piece of pieces) {
    response.write(piece);
    await new Promise(setImmediate);
  }
  if (broken !== null) response.destroy();
  else response.end();
}

// The soak's backend: right answers, and in a while of trouble one that breaks off, stalls or refuses now and then.
import type { Script } from '../../support/backend.ts';
import { askedIn, beginStream, echo, eventsFor, sleep } from '../words.ts';

const well = echo(3);
const STALL_MS = 1_500;

export interface Mood {
  /** One answer in so many goes wrong; 0: none. */
  trouble: number;
}

export function moody(mood: Mood): Script {
  let answered = 0;
  return async (request, response) => {
    if (mood.trouble === 0 || ++answered % mood.trouble !== 0) return well(request, response);
    const { question, stream } = askedIn(request);
    const kind = Math.floor(answered / mood.trouble) % 4;
    if (kind === 0) return void response.socket?.resetAndDestroy();
    if (kind === 1) return void response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":"busy"}');
    if (kind === 2) {
      await sleep(STALL_MS);
      return well(request, response);
    }
    if (!stream) return void response.writeHead(200, { 'content-length': 100 }).end('{');
    beginStream(response);
    const events = eventsFor(question).join('');
    response.write(events.slice(0, Math.floor(events.length * 0.9)));
    await sleep(5);
    response.socket?.resetAndDestroy();
  };
}

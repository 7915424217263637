// Delivers a backend's error: its status, its retry-after, its words in OpenAI's shape.

import type { AnswerHead } from '../engine/engine.ts';
import { rewriteError } from '../engine/error.ts';
import { toClient } from '../engine/headers.ts';
import { Problem } from '../problem.ts';
import type { Delivery, Exchange } from './exchange.ts';
import type { Port } from './relay.ts';

const MAX_ERROR_BYTES = 256 * 1024;
/** A day. */
const MAX_RETRY_S = 86_400;

export function errorDelivery(head: AnswerHead, port: Port, exchange: Exchange): Delivery {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const send = () => {
    const body = JSON.stringify(rewriteError(head.status, Buffer.concat(chunks).toString('utf8')));
    const headers = toClient(head.headers);
    // No other header of an error answer is about the body that goes out.
    const kept = Object.fromEntries(
      Object.entries(headers).filter(([name]) =>
        /^(retry-after(-ms)?|www-authenticate|allow|x-ratelimit-.*)$/.test(name),
      ),
    );
    const retry = retryAfter(head);
    exchange.outgoing.writeHead(head.status, {
      ...kept,
      ...(retry === null ? {} : { 'retry-after': retry }),
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    exchange.outgoing.end(body);
    port.done({ status: head.status });
  };
  return {
    data(chunk) {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes < MAX_ERROR_BYTES) return;
      port.cancel();
      send();
    },
    end: send,
    fail: () =>
      port.refuse(
        new Problem('backend_bad_response', `The backend broke off while it answered with status ${head.status}.`),
      ),
  };
}

/** Clients expect whole seconds: a date or a fraction becomes them, and 429 and 503 always have one. */
function retryAfter(head: AnswerHead): string | null {
  const given = head.headers['retry-after'];
  if (given === undefined) return head.status === 429 || head.status === 503 ? '1' : null;
  const seconds = Number.isNaN(Number(given)) ? (Date.parse(given) - Date.now()) / 1000 : Number(given);
  return String(Number.isFinite(seconds) ? Math.min(MAX_RETRY_S, Math.max(1, Math.ceil(seconds))) : 1);
}

// GET /v1/models for a key that is for some models only: the backend's list, less the others.
import * as z from 'zod';
import type { Delivery, Exchange } from '../delivery/exchange.ts';
import type { Port } from '../delivery/relay.ts';
import type { AnswerHead } from '../engine/engine.ts';
import { Problem } from '../problem.ts';

const MAX_LIST_BYTES = 4 * 1024 * 1024;
const listSchema = z.looseObject({ data: z.array(z.looseObject({ id: z.string() })) });

export function modelsDelivery(
  head: AnswerHead,
  port: Port,
  exchange: Exchange,
  models: ReadonlySet<string>,
): Delivery {
  const { outgoing } = exchange;
  const chunks: Buffer[] = [];
  let bytes = 0;
  return {
    data(chunk) {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > MAX_LIST_BYTES) port.refuse(bad());
    },
    end() {
      const body = listOf(Buffer.concat(chunks).toString('utf8'), models);
      if (body === null) return port.refuse(bad());
      outgoing.writeHead(head.status, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      });
      outgoing.end(body);
      port.done({ status: head.status });
    },
    fail: (problem) => port.refuse(problem),
  };
}

/** null for what is no list, or too deep to be written again. */
function listOf(text: string, models: ReadonlySet<string>): string | null {
  try {
    const list = listSchema.parse(JSON.parse(text));
    return JSON.stringify({ ...list, data: list.data.filter(({ id }) => models.has(id)) });
  } catch {
    return null;
  }
}

const bad = () => new Problem('backend_bad_response', 'The backend answered with no list of models.');

// Accounts for each request except GET that reached the backend: usage of its key, its metrics, and its line in the audit log.
import { Counter, type Registry } from 'prom-client';
import type { Caller } from '../keys/keys.ts';
import type { AuditLog } from './audit-log.ts';
import type { Tokens } from './llm-tokens.ts';
import type { Amounts, UsageBook } from './usage.ts';

/** A request at its end. */
export interface Accounted {
  readonly id: string;
  readonly caller: Caller;
  readonly method: string;
  /** The request's path without its query if the backend served it; else its route. */
  readonly endpoint: string;
  /** The model as a metric's label: one of a bounded set. */
  readonly model: string;
  readonly status: number;
  readonly tokens: Tokens;
  /** The response's part of the GPU time for its signature. */
  readonly gpu_ms: number;
  readonly signed: Signed | null;
}

/** The attestation of a response. */
export interface Signed {
  readonly nonce: string;
  /** The `ueid` of each device that signed. */
  readonly devices: readonly string[];
  /** The highest level that the evidence can show. Only a relying party can find `measured`. */
  readonly level: 'none' | 'gpu' | 'gpu+cpu';
}

interface Accounting {
  /** False: nothing is recorded, and a response's LLM tokens need not be read. */
  readonly counts: boolean;
  record(request: Accounted): void;
}

/** A label's values live as long as the process, so their number is limited. Further keys share one. */
export const MAX_KEY_LABELS = 256;
const OTHER_KEY = 'other';

/** `book` null: there are no API keys. `audit` null: there is no audit log. */
export function createAccounting(registry: Registry, book: UsageBook | null, audit: AuditLog | null): Accounting {
  const metrics = createUsageMetrics(registry);
  const labels = new Set<string>();
  function keyLabel(name: string): string {
    if (labels.has(name)) return name;
    if (labels.size >= MAX_KEY_LABELS) return OTHER_KEY;
    labels.add(name);
    return name;
  }

  function count(request: Accounted, book: UsageBook): void {
    const { caller, tokens, model, signed } = request;
    const amounts: Amounts = {
      requests: 1,
      attested: signed === null ? 0 : 1,
      input_tokens: tokens.input,
      output_tokens: tokens.output,
      gpu_us: Math.round(request.gpu_ms * 1_000),
    };
    book.add(caller.name, model, amounts);
    const of = { key: keyLabel(caller.name), model };
    metrics.requests.inc({ ...of, counted: tokens.source });
    metrics.tokens.inc({ ...of, direction: 'input' }, tokens.input);
    metrics.tokens.inc({ ...of, direction: 'output' }, tokens.output);
    if (signed === null) return;
    metrics.attested.inc(of);
    metrics.gpuSeconds.inc(of, request.gpu_ms / 1000);
  }

  return {
    counts: book !== null || audit !== null,
    record(request) {
      if (request.method === 'GET') return;
      if (book !== null) count(request, book);
      const { id, caller, endpoint, model, status, tokens, signed } = request;
      audit?.add({
        id,
        key: caller.name,
        endpoint,
        model,
        status,
        input_tokens: tokens.input,
        output_tokens: tokens.output,
        tokens: tokens.source,
        ...signed,
      });
    },
  };
}

function createUsageMetrics(registry: Registry) {
  const registers = [registry];
  return {
    requests: new Counter({
      name: 'countersign_key_requests_total',
      help: 'Requests of an API key that reached the backend. counted: who counted the tokens, the backend, the gateway by the events of a stream or by an estimate, or nobody.',
      labelNames: ['key', 'model', 'counted'] as const,
      registers,
    }),
    tokens: new Counter({
      name: 'countersign_key_tokens_total',
      help: "Tokens of an API key's requests, by the backend's count. direction: input, output.",
      labelNames: ['key', 'model', 'direction'] as const,
      registers,
    }),
    attested: new Counter({
      name: 'countersign_key_attested_total',
      help: 'Answers to an API key that were attested.',
      labelNames: ['key', 'model'] as const,
      registers,
    }),
    gpuSeconds: new Counter({
      name: 'countersign_key_gpu_seconds_total',
      help: "The GPU's time for signatures over answers to an API key. Answers of a batch divide theirs.",
      labelNames: ['key', 'model'] as const,
      registers,
    }),
  };
}

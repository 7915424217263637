// Many requests with tee at once on one GPU: every one answered with a proof of its own, in order of arrival, or refused at once.
import { createHash } from 'node:crypto';
import { createNativeAttester } from '../../sidecar/attesters/native/native.ts';
import { missing, startBench } from '../../test/sidecar/attesters/native/native-bench.ts';
import { answer, chatBody, startBackend } from '../../test/support/backend.ts';
import { startGateway, startSidecar, temporaryFolder } from '../../test/support/harness.ts';
import type { Grid } from '../report/table.ts';

const REQUESTS = 200;
const COLLECTION_MS = 20;
const ANSWER_MS = 60_000;

type Outcome = 'answered' | 'refused' | string;

interface Told {
  readonly outcome: Outcome;
  readonly nonce: string | null;
  readonly took_ms: number;
}

export async function crowd(): Promise<Grid | null> {
  if (missing !== null) return null;
  const bench = await startBench();
  bench.faults.collection_ms = COLLECTION_MS;
  const lines: Grid['lines'][number][] = [];
  try {
    for (const queue_max of [1024, 64]) lines.push(await measure(bench, queue_max));
  } finally {
    await bench.close();
  }
  return {
    title: `${REQUESTS} requests with tee at once on one GPU that takes ${COLLECTION_MS} ms, through gateway and sidecar`,
    heads: ['answered', 'refused', 'lost or crossed', 'out of order', 'first ms', 'last ms', 'MB more'],
    lines,
  };
}

async function measure(
  bench: Awaited<ReturnType<typeof startBench>>,
  queue_max: number,
): Promise<Grid['lines'][number]> {
  const folder = temporaryFolder();
  const backend = await startBackend();
  backend.script = (request, response) => answer(chatBody(`to ${markerIn(request.body)}`))(request, response);
  const native = await createNativeAttester(bench.options);
  const arrived: string[] = [];
  const attester = {
    ...native,
    simulated: { root: bench.options.roots.device },
    attest: (...asked: Parameters<typeof native.attest>) => {
      arrived.push(asked[0]);
      return native.attest(...asked);
    },
  };
  const sidecar = await startSidecar(folder, { attester, queueMax: queue_max, deadlineMs: ANSWER_MS });
  const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
  try {
    await ask(gateway.url, 'warm');
    arrived.length = 0;
    const before = process.memoryUsage().rss;
    let peak = before;
    const watching = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().rss);
    }, 50);
    const order: string[] = [];
    const told = await Promise.all(
      Array.from({ length: REQUESTS }, async (_, i) => {
        const one = await ask(gateway.url, `marker-${i}`);
        if (one.nonce !== null) order.push(one.nonce);
        return one;
      }),
    );
    clearInterval(watching);
    const count = (outcome: Outcome) => told.filter((one) => one.outcome === outcome).length;
    const wrong = told.find(({ outcome }) => outcome !== 'answered' && outcome !== 'refused')?.outcome;
    const took_ms = told.filter(({ outcome }) => outcome === 'answered').map((one) => one.took_ms);
    return {
      name: `queue of ${queue_max}`,
      cells: [
        `${count('answered')}`,
        `${count('refused')}`,
        `${REQUESTS - count('answered') - count('refused')}`,
        `${order.filter((nonce, i) => arrived[i] !== nonce).length}`,
        Math.min(...took_ms).toFixed(0),
        Math.max(...took_ms).toFixed(0),
        ((peak - before) / 2 ** 20).toFixed(0),
      ],
      ...(wrong === undefined ? {} : { note: `first: ${wrong}` }),
    };
  } finally {
    await gateway.close();
    await sidecar.close();
    await backend.close();
    folder.remove();
  }
}

const markerIn = (body: string): string => (JSON.parse(body) as { user: string }).user;

/** One request; its proof must be over its own marker, in request and answer, and the GPU's report over that. */
async function ask(url: string, marker: string): Promise<Told> {
  const start = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'bench', messages: [{ role: 'user', content: 'Hello' }], user: marker, tee: true }),
    signal: AbortSignal.timeout(ANSWER_MS),
  }).catch((error: Error) => error);
  const took_ms = () => performance.now() - start;
  if (response instanceof Error) return { outcome: response.message, nonce: null, took_ms: took_ms() };
  if (response.status === 503 && response.headers.has('retry-after')) {
    await response.text();
    return { outcome: 'refused', nonce: null, took_ms: took_ms() };
  }
  const body = (await response.json()) as {
    attestation?: { raw: string; nonce: string; evidence: { report: string }[] };
  };
  const { attestation } = body;
  if (attestation === undefined) return { outcome: `status ${response.status}`, nonce: null, took_ms: took_ms() };
  const { raw, nonce, evidence } = attestation;
  const reported = Buffer.from(evidence[0]?.report ?? '', 'base64').toString('hex', 4, 36);
  const own = raw.includes(`"user":"${marker}"`) && raw.includes(`"to ${marker}"`);
  const right = own && createHash('sha256').update(raw).digest('hex') === nonce && reported === nonce;
  return { outcome: right ? 'answered' : 'a proof of something else', nonce, took_ms: took_ms() };
}

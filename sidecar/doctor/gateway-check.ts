// Reads the gateway's health of the model behind it. A GPU may attest and still compute nonsense: with vLLM's V2 model runner in
// confidential mode it does, with status 200 (vllm-project/vllm#57224). Only a request whose response is known reveals that; the
// gateway's canary sends one.
import * as z from 'zod';
import { readLimited } from '../../verify/service.ts';
import { type Finding, fail, ok, skip, warn } from './finding.ts';
import { type Host, reasonOf } from './host.ts';

const NAME = 'backend';
const TIMEOUT_MS = 5_000;
const MAX_BYTES = 64 * 1024;
/** The longest part of the gateway's reason that is shown. */
const MAX_WORDS = 200;

/** Enough of our /health that nobody else's passes for it: many servers have a /health with a status, or a member `backend`. */
const healthSchema = z.looseObject({
  status: z.string(),
  version: z.string(),
  sidecar: z.looseObject({}),
  backend: z.looseObject({
    status: z.string(),
    canary: z
      .looseObject({ state: z.string(), reason: z.string().nullish(), token_ids: z.boolean().optional() })
      .optional(),
  }),
});

/** Where a gateway listens by default. */
export const DEFAULT_GATEWAY = 'http://127.0.0.1:8080';

export async function checkBackend(host: Host, gateway_url: string): Promise<Finding[]> {
  const url = `${gateway_url.replace(/\/+$/, '')}/health`;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  try {
    response = await host.fetchNear(url, { redirect: 'manual', signal });
  } catch (error) {
    return [
      skip(NAME, `no gateway answers at ${url} (${reasonOf(error)}): nobody looked at the model; --gateway names it`),
    ];
  }
  // While the backend is down the gateway responds 503, with the same body. Another server may send anything, without an end.
  const text = await readLimited(response, MAX_BYTES).then(
    (bytes) => Buffer.from(bytes).toString(),
    () => '',
  );
  const parsed = healthSchema.safeParse(jsonOf(text));
  if (!parsed.success) {
    const server = response.headers.get('server');
    const who = server === null ? '' : `, ${printable(server)}`;
    return [
      warn(
        NAME,
        `what answers at ${url} is another program (status ${response.status}${who}): nobody looked at the model`,
        'name the gateway: --gateway URL; or move what has its port',
      ),
    ];
  }
  return [ofCanary(url, parsed.data.backend)];
}

function ofCanary(url: string, { status, canary }: z.infer<typeof healthSchema>['backend']): Finding {
  const reason = canary?.reason ? ` (${printable(canary.reason)})` : '';
  switch (canary?.state) {
    case 'good':
      return ok(
        NAME,
        `the gateway at ${url} asked the model something known, and the answer was right; it gives ${canary.token_ids === true ? 'token ids: answers that ask for them can be audited later' : 'no token ids: answers can be audited by their text alone'}`,
      );
    case 'wrong':
      return fail(
        NAME,
        `the model answers nonsense${reason}: it is attested all the same`,
        'vLLM in confidential mode: VLLM_USE_V2_MODEL_RUNNER=0 in its environment (vllm-project/vllm#57224), then restart it; else its log',
      );
    case 'unavailable':
      return warn(NAME, `the gateway's canary gets no answer from the model${reason}`, 'is vLLM up? Look at its log');
    case 'pending':
      return skip(NAME, `the canary of the gateway at ${url} has not asked yet`);
    case 'off':
      return skip(NAME, `the canary of the gateway at ${url} is off: nobody looks whether the model makes sense`);
    default:
      return skip(NAME, `the gateway at ${url} tells of no canary; its backend is ${printable(status)}`);
  }
}

/** Safe to show on a terminal. */
const printable = (text: string) => text.slice(0, MAX_WORDS).replace(/[^\x20-\x7e]/g, '?');

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

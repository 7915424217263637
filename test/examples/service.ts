// The service as the examples use it: a gateway before the demo engine, and one before a scripted model that can call a tool.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startEngine } from '../../demo/engine/server.ts';
import { formOf, formScripts } from '../clients/form-scripts.ts';
import { answer, DONE, event, type Script, startBackend, stream } from '../support/backend.ts';
import { type RunningGateway, startGateway, startSidecar, temporaryFolder } from '../support/harness.ts';

/** A type, not an interface: an environment takes it. */
type Client = { readonly OPENAI_BASE_URL: string; readonly OPENAI_API_KEY: string };

export interface Service {
  /** OPENAI_BASE_URL and OPENAI_API_KEY before the demo engine. */
  readonly demo: Client;
  /** The same before the model that calls get_weather and then says what it heard, and embeds. */
  readonly agent: Client;
  /** A file: the simulated GPU's root. */
  readonly root: string;
  /** An empty folder that goes away with the service. */
  readonly folder: string;
  close(): Promise<void>;
}

/** What the agents must end with. */
export const SAID = 'I heard: 18 degrees in Paris.';

export async function startService(): Promise<Service> {
  const folder = temporaryFolder();
  const key = 'sk-example';
  const keys = join(folder.path, 'keys');
  writeFileSync(keys, `${key}\n`);
  const [backend, engine, sidecar] = await Promise.all([startBackend(weather), startEngine(), startSidecar(folder)]);
  const env = { API_KEYS_FILE: keys, SIDECAR_SOCKET: sidecar.socket };
  const [demo, agent] = await Promise.all([
    startGateway({ ...env, BACKEND_URL: `${engine.url}/v1` }),
    startGateway({ ...env, BACKEND_URL: backend.url }),
  ]);
  const client = ({ url }: RunningGateway) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: key });
  return {
    demo: client(demo),
    agent: client(agent),
    root: join(folder.path, 'simulated-root', 'root.pem'),
    folder: folder.path,
    async close() {
      await Promise.all([demo.close(), agent.close()]);
      await Promise.all([sidecar.close(), backend.close(), engine.close()]);
      folder.remove();
    },
  };
}

interface Asked {
  readonly stream?: boolean;
  readonly messages: readonly { readonly role: string; readonly content: unknown }[];
}

const forms = formScripts();
let number = 0;

/** Calls the tool until it has heard from it; whole or streamed, its arguments in pieces. */
const weather: Script = (request, response) => {
  if (formOf(request.url) !== null) return forms.script(request, response);
  const asked = JSON.parse(request.body) as Asked;
  const heard = asked.messages.findLast(({ role }) => role === 'tool')?.content;
  const text = heard === undefined ? null : `I heard: ${typeof heard === 'string' ? heard : JSON.stringify(heard)}.`;
  const base = { id: `chatcmpl-${++number}`, created: 1_700_000_000, model: 'scripted' };
  const reason = text === null ? 'tool_calls' : 'stop';
  const call = { id: `call_${number}`, type: 'function' };
  if (asked.stream !== true) {
    const tool_calls = [{ ...call, function: { name: 'get_weather', arguments: '{"city":"Paris"}' } }];
    const message = { role: 'assistant', content: text, ...(text === null ? { tool_calls } : {}) };
    const choices = [{ index: 0, message, logprobs: null, finish_reason: reason }];
    return answer(JSON.stringify({ ...base, object: 'chat.completion', choices, usage }))(request, response);
  }
  const chunk = (delta: object, finish_reason: string | null = null) =>
    event({ ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, logprobs: null, finish_reason }] });
  const pieces =
    text === null
      ? [
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ index: 0, ...call, function: { name: 'get_weather', arguments: '' } }],
          },
          { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] },
          { tool_calls: [{ index: 0, function: { arguments: '"Paris"}' } }] },
        ]
      : [{ role: 'assistant', content: '' }, ...text.split(/(?<= )/).map((content) => ({ content }))];
  return stream([...pieces.map((delta) => chunk(delta)), chunk({}, reason), DONE])(request, response);
};

const usage = { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 };

// Routes of a backend that change it or show its inside: for admin keys alone. The gateway has one key for the backend, often
// its most powerful one, and a client's path would reach all that the backend lets that key do.
import { Problem } from '../problem.ts';
import type { Caller } from './caller.ts';

/** What may stand before a route's own name: a backend may have the same one under each. */
const PREFIXES = new Set(['v1', 'v2', 'api', 'openai']);

/** Commands, which are verbs where what everybody may use is a noun: vLLM's load_lora_adapter, SGLang's update_weights_from_disk. */
const COMMANDS =
  /^(load|unload|start|stop|update|set|get|reset|init|destroy|flush|clear|dump|freeze|scale|is|configure|release|resume|pause|continue|abort|send|open|close|attach|detach|wake)_/;

const MANAGEMENT = new Set([
  // vLLM, https://docs.vllm.ai/en/stable/serving/online_serving.html, and its development mode
  ...['sleep', 'wake_up', 'pause', 'resume', 'collective_rpc', 'server_info', 'load', 'metrics'],
  // SGLang, its http_server.py
  ...[
    'loads',
    'hicache',
    'slow_down',
    'weights_checker',
    'model_info',
    'dumper',
    'remote_instance_transfer_engine_info',
  ],
  // llama-server, https://github.com/ggml-org/llama.cpp/tree/master/tools/server
  ...['slots', 'props', 'lora-adapters', 'tools', 'cors-proxy'],
  // LMDeploy, its api_server and its proxy
  ...['wakeup', 'terminate', 'distserve', 'nodes'],
  // TGI
  ...['info'],
  // text-generation-webui, TabbyAPI, Aphrodite
  ...['internal', 'lora', 'loras', 'download', 'auth', 'template', 'templates', 'sampling', 'soft_prompt'],
  // Ollama, LocalAI
  ...['pull', 'push', 'create', 'copy', 'delete', 'blobs', 'ps', 'backend', 'backends', 'system'],
  // OpenAI and LiteLLM: accounts, and what is made for all of them
  ...['organization', 'projects', 'fine_tuning', 'fine-tunes', 'admin', 'config', 'credentials', 'cache', 'global'],
  ...['key', 'user', 'team', 'customer', 'budget', 'spend'],
]);

/** At the end of a route that is a noun: TabbyAPI's /v1/model/load, llama-server's /models/unload. */
const VERBS = new Set(['load', 'unload', 'switch', 'download', 'apply', 'new', 'update', 'delete']);
/** OpenAI's and the servers' list of models: to be read. */
const MODELS = new Set(['model', 'models']);

/** What one may delete of one's own, by its id, as OpenAI's clients do. */
const DELETABLE = /^(files|responses|conversations|chat\/completions|threads|assistants|vector_stores|containers)\/./;

/**
 * @param path of the backend, with its query
 * @throws {Problem} permission_denied
 */
export function checkRoute({ limits: { admin } }: Caller, method: string, path: string): void {
  if (admin || !isManagement(method, path)) return;
  throw new Problem(
    'permission_denied',
    'This route manages the backend. It is for admin keys, which "countersign keys add NAME --admin" makes.',
  );
}

function isManagement(method: string, path: string): boolean {
  const segments = segmentsOf(path);
  const [name = '', ...rest] = segments;
  if (COMMANDS.test(name) || MANAGEMENT.has(name)) return true;
  if (method === 'DELETE') return !DELETABLE.test(segments.join('/'));
  if (!MODELS.has(name)) return method === 'POST' && VERBS.has(rest.at(-1) ?? '');
  // A model may be called as it likes, in one segment: what is listed beside the models is not.
  return method === 'POST' || (rest.length === 1 && rest[0] === 'sse');
}

/** As the most lenient server reads them: decoded, in any case, without empty ones and without parameters. */
function segmentsOf(path: string): string[] {
  const decoded = decodeURIComponent(path.split('?', 1)[0] ?? '');
  const segments = decoded
    .toLowerCase()
    .split('/')
    .map((segment) => (segment.split(';', 1)[0] as string).trim())
    .filter((segment) => segment !== '');
  const first = segments.findIndex((segment) => !PREFIXES.has(segment));
  return first < 0 ? [] : segments.slice(first);
}

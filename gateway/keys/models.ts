// Which models a key may use. A backend can also take a model from the path, the query, a header or another member than `model`, so a key
// with a list of models has only the routes, parameters, headers and members of these tables. A key without a list is not checked.
import { duplicateMember, isObject } from '../../proto/json.ts';
import { Problem } from '../base/problem.ts';
import { withoutQuery } from '../base/target.ts';
import type { Caller } from './keys.ts';

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/));

/** POST with a JSON body that names its model: OpenAI, Anthropic, and vLLM's scoring and tokenizer. */
const ROUTES = words(`
  /chat/completions /completions /embeddings /moderations /responses
  /messages /messages/count_tokens
  /rerank /score /classify /pooling /tokenize /detokenize
`);

/** Azure's and Anthropic's clients send these. */
const QUERY = /^(\?((api-version|beta)=[\w.-]*(&|$))*)?$/;

/** What clients and proxies send for themselves. Many other headers choose a model: x-portkey-config, helicone-fallbacks, seldon-model … */
const HEADERS =
  /^(accept(-language)?|content-type|user-agent|idempotency-key|traceparent|tracestate|x-(client-)?request-id|x-stainless-.*|anthropic-(version|beta)|openai-beta)$/;

/**
 * Members of a body that name no model. Left out, although documented: `moderation`, `fallbacks` and `lora_path` name one, `logits_processors`
 * and `mm_processor_kwargs` reach the backend's code, `session_params` and `thread` continue what another request began.
 * `previous_response_id` and `conversation` bring what was said before: the model that answers is the new request's own.
 */
const MEMBERS = new Set([
  // Of this gateway, and of most routes
  ...words(
    'tee model stream stream_options n user metadata store service_tier seed stop temperature top_p max_tokens tools tool_choice',
  ),
  // OpenAI: chat, completions, embeddings, responses
  ...words(`messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens modalities
    parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
    response_format safety_identifier top_logprobs verbosity web_search_options`),
  ...words('prompt best_of echo suffix'),
  ...words('input dimensions encoding_format'),
  ...words(`background context_management conversation include instructions max_output_tokens max_tool_calls previous_response_id reasoning
    text truncation`),
  // Anthropic
  ...words('system stop_sequences thinking cache_control output_config output_format inference_geo speed'),
  // vLLM: sampling, then scoring and tokenizer
  ...words(`top_k min_p min_tokens repetition_penalty length_penalty use_beam_search stop_token_ids ignore_eos include_stop_str_in_output
    skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens prompt_logprobs allowed_token_ids bad_words priority cache_salt
    guided_json guided_regex guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern structured_outputs
    structural_tag chat_template_kwargs documents add_generation_prompt add_special_tokens continue_final_message include_reasoning
    thinking_token_budget repetition_detection return_tokens_as_token_ids return_token_ids return_token_strs request_id`),
  ...words(`query queries top_n max_tokens_per_doc return_documents text_1 text_2 data_1 data_2 items task normalize activation
    use_activation softmax embed_dtype endianness tokens`),
  // SGLang
  ...words('regex ebnf json_schema stop_regex no_stop_trim separate_reasoning stream_reasoning rid'),
  // llama.cpp
  ...words(`n_predict n_keep n_probs min_keep typical_p top_n_sigma dynatemp_range dynatemp_exponent repeat_last_n repeat_penalty mirostat
    mirostat_tau mirostat_eta xtc_probability xtc_threshold dry_multiplier dry_base dry_allowed_length dry_penalty_last_n
    dry_sequence_breakers grammar samplers cache_prompt post_sampling_probs return_tokens return_progress timings_per_token
    reasoning_format thinking_forced_open parse_tool_calls`),
]);

/** A function of the client's. Tools of the backend (image_generation, advisor) bring a model of their own. */
const TOOL_TYPES: ReadonlySet<unknown> = new Set(['function', 'custom', undefined]);
const TOOL_MEMBERS = words(`
  type function custom name description parameters strict format output_schema input_schema input_examples cache_control defer_loading
  allowed_callers eager_input_streaming
`);

/** Limit for a client's text in an error message. */
const MAX_SHOWN = 128;

/**
 * Rejects a model that the key may not use. The message is OpenAI's own, and the same as for a model that does not exist.
 * @param text the body that `value` was parsed from
 * @throws {Problem} model_not_found; invalid_request naming a member that could name another model.
 */
export function checkModel({ limits: { models } }: Caller, text: string, value: unknown): void {
  if (models === null) return;
  const body = isObject(value) ? value : {};
  for (const name in body) if (!MEMBERS.has(name)) throw refused(name, 'may use only documented members');
  // Parsers take the first or the last of duplicates.
  const twice = isObject(value) ? duplicateMember(text) : null;
  if (twice !== null) throw refused(twice, 'must name each member once');
  const { model } = body;
  if (typeof model !== 'string') throw refused('model', 'must name one model');
  if (!models.has(model)) throw noSuchModel(model);
  // A stored prompt has a model and tools. The prompt of a completion is a text or tokens.
  if (isObject(body.prompt)) throw refused('prompt', 'may not use stored prompts');
  checkTools(body.tools);
  // Items of a conversation may add tools to it.
  for (const list of [body.input, body.messages])
    if (Array.isArray(list)) for (const item of list) if (isObject(item)) checkTools(item.tools);
}

function checkTools(tools: unknown): void {
  const allowed = (tool: unknown) =>
    isObject(tool) && TOOL_TYPES.has(tool.type) && Object.keys(tool).every((name) => TOOL_MEMBERS.has(name));
  if (tools !== undefined && tools !== null && !(Array.isArray(tools) && tools.every(allowed)))
    throw refused('tools', 'may use only tools of the types function and custom');
}

function refused(name: string, rule: string): Problem {
  const param = name.slice(0, MAX_SHOWN);
  return new Problem('invalid_request', `${param}: an API key with a list of models ${rule}.`, { param });
}

/**
 * Checks the route of a key with a list of models. It may also read the list and its models. Bodies are for {@link checkModel}.
 * @param path of the backend, with its query
 * @throws {Problem} permission_denied, invalid_request, model_not_found
 */
export function checkPath({ limits: { models } }: Caller, method: string, path: string, json: boolean): void {
  if (models === null) return;
  const route = withoutQuery(path);
  const [, one] = /^\/models(?:\/(.*))?$/.exec(route) ?? [null, null];
  if (method === 'POST' ? !json || !ROUTES.has(route) : method !== 'GET' || one === null)
    throw new Problem(
      'permission_denied',
      'This API key is for some models only, and may use only routes whose JSON body names the model.',
    );
  if (!QUERY.test(path.slice(route.length)))
    throw new Problem('invalid_request', 'This API key is for some models only, and may send no such query.');
  if (method === 'GET' && one && !models.has(decodeURIComponent(one))) throw noSuchModel(decodeURIComponent(one));
}

/** Whether the backend may receive a header of this name from the caller. */
export function mayForward({ limits: { models } }: Caller, header: string): boolean {
  return models === null || HEADERS.test(header);
}

export function noSuchModel(model: string): Problem {
  const name = model.slice(0, MAX_SHOWN);
  return new Problem('model_not_found', `The model \`${name}\` does not exist or you do not have access to it.`);
}

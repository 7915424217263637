// A llama of seeded random weights, complete enough for llama.cpp to serve: its text is nonsense, its HTTP is the real thing.
import { createHash } from 'node:crypto';
import { type Meta, type Tensor, writeGguf } from './gguf.ts';
import { BOS, EOS, UNK, VOCABULARY } from './vocabulary.ts';

const CONTEXT = 8_192;
const WIDTH = 64;
const BLOCKS = 2;
const HEADS = 4;
const FEED_FORWARD = 128;
/** Far enough apart that one token differs from the next, near enough that sampling has a choice. */
const SPREAD = 0.25;

/** Tools in the Hermes manner: from it llama.cpp works out by itself how this model calls one, and holds it to that grammar. */
const TEMPLATE = `{%- if tools %}<|system|>
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}<|assistant|>
{%- if message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|end|>
{% else %}<|{{ message.role }}|>
{{ message.content }}<|end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>
{% endif %}`;

/** The whole file. Same seed, same bytes, on every machine. */
export function writeModel(seed: string): Buffer {
  return writeGguf(metadata(seed), tensors(seed));
}

function metadata(seed: string): Record<string, Meta> {
  return {
    'general.architecture': { text: 'llama' },
    'general.name': { text: `countersign-random-${seed}` },
    'llama.context_length': { u32: CONTEXT },
    'llama.embedding_length': { u32: WIDTH },
    'llama.block_count': { u32: BLOCKS },
    'llama.feed_forward_length': { u32: FEED_FORWARD },
    'llama.attention.head_count': { u32: HEADS },
    'llama.attention.head_count_kv': { u32: HEADS },
    'llama.attention.layer_norm_rms_epsilon': { f32: 1e-5 },
    'llama.rope.dimension_count': { u32: WIDTH / HEADS },
    'llama.rope.freq_base': { f32: 10_000 },
    'llama.vocab_size': { u32: VOCABULARY.length },
    'tokenizer.ggml.model': { text: 'llama' },
    'tokenizer.ggml.tokens': { texts: VOCABULARY.map((token) => token.text) },
    'tokenizer.ggml.scores': { f32s: VOCABULARY.map((token) => token.score) },
    'tokenizer.ggml.token_type': { i32s: VOCABULARY.map((token) => token.type) },
    'tokenizer.ggml.unknown_token_id': { u32: UNK },
    'tokenizer.ggml.bos_token_id': { u32: BOS },
    'tokenizer.ggml.eos_token_id': { u32: EOS },
    'tokenizer.ggml.add_bos_token': { flag: true },
    'tokenizer.chat_template': { text: TEMPLATE },
  };
}

function tensors(seed: string): Tensor[] {
  const matrix = (name: string, columns: number, rows: number): Tensor => ({
    name: `${name}.weight`,
    dims: [columns, rows],
    data: random(`${seed}/${name}`, columns * rows),
  });
  const norm = (name: string): Tensor => ({
    name: `${name}.weight`,
    dims: [WIDTH],
    data: new Float32Array(WIDTH).fill(1),
  });
  const blocks = Array.from({ length: BLOCKS }, (_, i) => [
    norm(`blk.${i}.attn_norm`),
    matrix(`blk.${i}.attn_q`, WIDTH, WIDTH),
    matrix(`blk.${i}.attn_k`, WIDTH, WIDTH),
    matrix(`blk.${i}.attn_v`, WIDTH, WIDTH),
    matrix(`blk.${i}.attn_output`, WIDTH, WIDTH),
    norm(`blk.${i}.ffn_norm`),
    matrix(`blk.${i}.ffn_gate`, WIDTH, FEED_FORWARD),
    matrix(`blk.${i}.ffn_down`, FEED_FORWARD, WIDTH),
    matrix(`blk.${i}.ffn_up`, WIDTH, FEED_FORWARD),
  ]);
  return [
    matrix('token_embd', WIDTH, VOCABULARY.length),
    ...blocks.flat(),
    norm('output_norm'),
    quiet(matrix('output', WIDTH, VOCABULARY.length)),
  ];
}

/** Uniform in [-SPREAD, SPREAD): SHAKE-256 over the name gives as many bytes as the tensor has room for. */
function random(name: string, length: number): Float32Array {
  const bytes = createHash('shake256', { outputLength: length * 2 })
    .update(name)
    .digest();
  return Float32Array.from({ length }, (_, i) => (bytes.readInt16LE(i * 2) / 32_768) * SPREAD);
}

/** Rows of zeros for control and byte tokens: greedy text is made of words, and high temperature still reaches the rest. */
function quiet(output: Tensor): Tensor {
  VOCABULARY.forEach((token, row) => {
    if (token.type !== 1) output.data.fill(0, row * WIDTH, (row + 1) * WIDTH);
  });
  return output;
}

// The tokens of the seeded llama: control tokens, the 256 bytes, single characters, and words a reader can tell apart.

/** `tokenizer.ggml.token_type` */
const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const BYTE = 6;

export interface Token {
  readonly text: string;
  readonly type: number;
  /** SentencePiece merges the pair with the highest score first. */
  readonly score: number;
}

/** Where SentencePiece has a space. */
const SPACE = '▁';
export const UNK = 0;
export const BOS = 1;
export const EOS = 2;

const WORDS =
  `the of and to in is that it was for on are with as his they be at one have this from or had by hot word but what some we can out
other were all there when up use your how said an each she which do their time if will way about many then them write would like so these her long make
thing see him two has look more day could go come did number sound no most people my over know water than call first who may down side been now find any new
work part take get place made live where after back little only round man year came show every good me give our under name very through just form sentence
great think say help low line differ turn cause much mean before move right boy old too same tell does set three want air well also play small end put home
read hand port large spell add even land here must big high such follow act why ask men change went light kind off need house picture try us again animal
point mother world near build self earth father`
    .split(/\s+/)
    .map((word) => SPACE + word);

const ASCII = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).map((c) => (c === ' ' ? SPACE : c));

/** Characters of two, three and four bytes that are whole tokens; every other one is made of byte tokens. */
const WIDE = ['é', 'ß', '日', '本', '🙂'];

/** Begins a tool call as the chat template writes one, line end included. A request that wants a call for sure raises its logit. */
export const TOOL_CALL = '<tool_call>\n';

export const VOCABULARY: readonly Token[] = [
  { text: '<unk>', type: UNKNOWN, score: 0 },
  { text: '<s>', type: CONTROL, score: 0 },
  { text: '</s>', type: CONTROL, score: 0 },
  ...Array.from({ length: 256 }, (_, byte) => ({
    text: `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
    type: BYTE,
    score: 0,
  })),
  ...[...ASCII, ...WIDE].map((text) => ({ text, type: NORMAL, score: -1_000 })),
  { text: TOOL_CALL, type: NORMAL, score: -1_000 },
  ...WORDS.map((text, i) => ({ text, type: NORMAL, score: -i })),
];

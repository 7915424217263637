// What can be found in a transcript: a code for each, how grave it is, and what it means.

/**
 * `broken`: the run is not what it is said to be. `incomplete`: something is missing that would show it. `edit`: history that the model was
 * told rightly at first was told in another way later, as compaction does. `note`: for the reader.
 */
export type Severity = 'broken' | 'incomplete' | 'edit' | 'note';

const CODES = {
  proof_invalid: 'broken',
  repeated: 'broken',
  out_of_order: 'broken',
  result_unasked: 'broken',
  result_twice: 'broken',
  call_unanswered: 'broken',
  call_invented: 'broken',
  answer_invented: 'broken',
  answer_replayed: 'broken',
  said_changed: 'broken',
  calls_before: 'broken',
  answers_before: 'incomplete',
  parent_unknown: 'incomplete',
  proof_incomplete: 'incomplete',
  redacted: 'incomplete',
  line_cut: 'incomplete',
  not_comparable: 'incomplete',
  result_changed: 'edit',
  results_swapped: 'edit',
  call_changed: 'edit',
  answer_changed: 'edit',
  aside_changed: 'edit',
  history_changed: 'edit',
  history_shortened: 'edit',
  message_inserted: 'edit',
  instructions_changed: 'edit',
  branch: 'note',
  parallel_calls: 'note',
  calls_open: 'note',
  model_changed: 'note',
  state_hidden: 'note',
  receipt: 'note',
  opened: 'note',
  no_conversation: 'note',
} as const satisfies Readonly<Record<string, Severity>>;

export type Code = keyof typeof CODES;

export interface Finding {
  readonly code: Code;
  readonly severity: Severity;
  /** A sentence. Of what the run holds it has ids and names of tools only. */
  readonly text: string;
}

export const finding = (code: Code, text: string): Finding => ({ code, severity: CODES[code], text });

export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

const MAX_NAME = 64;

/** An id or a tool's name, which a stranger may have chosen, as it stands in a sentence. */
export const named = (name: string): string =>
  JSON.stringify(name.length > MAX_NAME ? `${name.slice(0, MAX_NAME)}…` : name);

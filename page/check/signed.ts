// The question and the answer that were signed, as a conversation.
import { el } from '../base/dom.ts';
import { answerOf, conversationIn, questionOf, type Said } from '../proof/signed-text.ts';
import type { Bubbles } from '../proof/tamper.ts';

/** More than this is not laid out; the file has it all. */
const MAX_SHOWN = 100_000;

const NAMES: Readonly<Record<string, string>> = {
  user: 'Question',
  assistant: 'Answer',
  system: 'Instructions',
  developer: 'Instructions',
  reasoning: 'Reasoning',
  tool: 'Tool',
};

/** null where raw holds nothing that was said. */
export function signedConversation(
  raw: string,
): { readonly element: HTMLElement; readonly bubbles: Bubbles | null } | null {
  const found = conversationIn(raw);
  if (found === null || found.request.length + found.response.length === 0) return null;
  const shown = new Map([...found.request, ...found.response].map((said) => [said, bubble(said)]));
  const [asked, answered] = [questionOf(found), answerOf(found)];
  const question = asked === undefined ? undefined : shown.get(asked)?.text;
  const answer = answered === undefined ? undefined : shown.get(answered)?.text;
  return {
    element: el(
      'section',
      { class: 'signed', 'aria-label': 'What was signed' },
      el('h3', {}, 'What was signed'),
      el('ol', { class: 'bubbles' }, ...[...shown.values()].map(({ element }) => element)),
      found.endpoint === '/v1/chat/completions'
        ? null
        : el('p', { class: 'note' }, 'Asked at ', el('code', {}, found.endpoint), '.'),
    ),
    bubbles: question === undefined || answer === undefined ? null : { question, answer },
  };
}

function bubble({ role, text, at }: Said): { readonly element: HTMLElement; readonly text: HTMLElement } {
  const long = text.length > MAX_SHOWN ? ` … (${text.length - MAX_SHOWN} more characters)` : '';
  const shown = el('div', { class: 'bubble-text' }, text.slice(0, MAX_SHOWN) + long);
  const element = el(
    'li',
    { class: `bubble ${at === null ? 'described' : ''}`, 'data-role': role },
    el('p', { class: 'who' }, NAMES[role] ?? role),
    shown,
  );
  return { element, text: shown };
}

// An answer as it comes: its words as Markdown, before them what the model thought, after them what it refused or wants called.
import { copyButton } from '../base/copy.ts';
import { el, type Writer, writerInto } from '../base/dom.ts';
import type { Listener } from '../base/stream.ts';
import { markdownInto } from './markdown.ts';

interface AnswerView extends Omit<Listener, 'signing'> {
  readonly element: HTMLElement;
  /** Where the words of the answer stand. */
  readonly words: HTMLElement;
  /** The words of the answer so far, as they came. */
  text(): string;
  /** Shows all that came. */
  end(): Promise<void>;
}

/** @param onShown runs whenever more is shown. */
export function createAnswer(onShown: () => void): AnswerView {
  const words = el('div', { class: 'answer' });
  const element = el('div', { class: 'said-by-model' }, words);
  const content = markdownInto(words, onShown);
  const others = new Map<string, Writer>();
  let text = '';

  function other(name: string, make: () => { readonly shell: HTMLElement; readonly into: HTMLElement }): Writer {
    const known = others.get(name);
    if (known !== undefined) return known;
    const { shell, into } = make();
    if (name === 'reasoning') words.before(shell);
    else element.append(shell);
    const writer = writerInto(into, onShown);
    others.set(name, writer);
    return writer;
  }

  return {
    element,
    words,
    text: () => text,
    content(piece) {
      text += piece;
      content.write(piece);
    },
    reasoning(piece) {
      other('reasoning', () => {
        const into = el('p', { class: 'thoughts' });
        return { into, shell: el('details', { class: 'fold reasoning' }, el('summary', {}, 'Reasoning'), into) };
      }).write(piece);
    },
    refusal(piece) {
      other('refusal', () => {
        const into = el('span');
        return { into, shell: el('p', { class: 'refusal' }, el('strong', {}, 'The model refused: '), into) };
      }).write(piece);
    },
    toolCall(index, piece) {
      other(`tool ${index}`, () => {
        const into = el('code');
        return { into, shell: el('p', { class: 'tool-call' }, el('strong', {}, 'The model asks for a tool: '), into) };
      }).write(piece);
    },
    async end() {
      await Promise.all([content, ...others.values()].map((writer) => writer.end()));
    },
  };
}

/** What can be done with an answer that has ended. */
export function answerActions(answer: AnswerView, again: () => void): HTMLElement {
  return el(
    'p',
    { class: 'answer-actions' },
    copyButton('Copy answer', answer.text),
    el('button', { type: 'button', class: 'small again', on: { click: again } }, 'Ask again'),
  );
}

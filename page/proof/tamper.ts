// Tampering where the text stands: a character of the question or of the answer is chosen in its bubble and changed in this page's copy,
// and the verdict beside it changes.
import type { Attestation, Check } from '../../verify/index.ts';
import { announce, el } from '../base/dom.ts';
import { answerOf, changedAt, conversationIn, questionOf, type Said } from './signed-text.ts';
import { type Subject, withAttestation } from './subject.ts';
import { isUnchecked } from './verdict.ts';
import { WORDS } from './words.ts';

/** The elements that show the two texts. */
export interface Bubbles {
  readonly question: HTMLElement;
  readonly answer: HTMLElement;
}

interface Target {
  readonly name: 'question' | 'answer';
  readonly element: HTMLElement;
  readonly said: Said & { readonly at: number };
}

type Recheck = (subject: Subject, attestation: Attestation) => Promise<readonly Check[]>;

/** @returns buttons and the line that says what happened; none where raw holds no text that could be chosen from. */
export function tamperBubbles(
  original: Subject,
  attestation: Attestation,
  { question, answer }: Bubbles,
  recheck: Recheck,
): HTMLElement[] {
  const found = conversationIn(attestation.raw);
  const targets = [
    ...target('question', question, found === null ? undefined : questionOf(found)),
    ...target('answer', answer, found === null ? undefined : answerOf(found)),
  ];
  if (targets.length === 0) return [];
  let shown: { readonly element: HTMLElement; readonly before: readonly Node[] }[] = [];
  const said = el('p', { class: 'said', hidden: true });
  const begin = el('button', { type: 'button', class: 'quiet', on: { click: start } }, 'Try tampering');
  const undo = el(
    'button',
    { type: 'button', class: 'quiet', hidden: true, on: { click: () => void restore() } },
    'Undo',
  );
  const end = el('button', { type: 'button', class: 'quiet', hidden: true, on: { click: () => void stop() } }, 'Done');

  function start(): void {
    begin.hidden = true;
    end.hidden = said.hidden = false;
    shown = targets.map(({ element }) => ({ element, before: [...element.childNodes] }));
    invite();
    said.textContent = 'Choose any character of the question or of the answer above.';
    announce(said.textContent);
    targets[0]?.element.querySelector<HTMLElement>('.source')?.focus();
  }

  function invite(
    changed: { readonly target: Target; readonly index: number; readonly is: string } | null = null,
  ): void {
    for (const target of targets) {
      const mark = changed?.target === target ? { index: changed.index, text: changed.is } : null;
      target.element.replaceChildren(sourceView(target, mark, (index) => void change(target, index)));
    }
  }

  async function change(target: Target, index: number): Promise<void> {
    const { raw, was, is } = changedAt(attestation.raw, target.said.at, index);
    const copy = { ...attestation, raw };
    invite({ target, index, is });
    undo.hidden = false;
    const checks = await recheck(withAttestation(original, copy), copy);
    const noticed = checks.filter((check) => check.status === 'fail' && !isUnchecked(check));
    const titles = noticed.map(({ name }) => `“${WORDS[name].title}”`).join(', ');
    said.textContent = `You changed ${visible(was)} to ${visible(is)} in the ${target.name}. Noticed by ${titles === '' ? 'no check' : titles}.`;
    undo.focus({ preventScroll: true });
    // The changed character above, the verdict below it.
    target.element.scrollIntoView({ block: 'start' });
  }

  async function restore(): Promise<void> {
    undo.hidden = true;
    said.textContent = 'Undone. Choose another character, or end with Done.';
    invite();
    await recheck(original, attestation);
    targets[0]?.element.querySelector<HTMLElement>('.source')?.focus();
  }

  async function stop(): Promise<void> {
    for (const { element, before } of shown) element.replaceChildren(...before);
    const changed = !undo.hidden;
    begin.hidden = false;
    undo.hidden = end.hidden = said.hidden = true;
    begin.focus();
    if (changed) await recheck(original, attestation);
  }
  return [begin, undo, end, said];
}

function target(name: Target['name'], element: HTMLElement, said: Said | undefined): Target[] {
  return said === undefined || said.at === null ? [] : [{ name, element, said: { ...said, at: said.at } }];
}

const visible = (character: string) =>
  character === '\n' ? 'a line break' : character === ' ' ? 'a space' : `“${character}”`;

/** The text as it was signed. A character is chosen with the pointer, or with the arrow keys and Enter. */
function sourceView(
  { name, said: { text } }: Target,
  changed: { readonly index: number; readonly text: string } | null,
  choose: (index: number) => void,
): HTMLElement {
  let at = changed?.index ?? 0;
  const source = el('div', {
    class: 'source',
    tabindex: 0,
    role: 'group',
    'aria-label': `The signed ${name}. Arrow keys choose a character, Enter changes it.`,
    on: { click: press, keydown: key },
  });
  /** The text around one character: `shown` in its place. */
  function show(kind: 'changed' | 'cursor', shown: string): void {
    const length = lengthAt(text, at);
    source.replaceChildren(text.slice(0, at), el('mark', { class: kind }, shown), text.slice(at + length));
  }
  function press({ clientX, clientY }: MouseEvent): void {
    const index = indexAt(source, clientX, clientY);
    if (index !== null && index < text.length) choose(index);
  }
  function key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10 }[event.key];
    if (step === undefined && event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    if (step === undefined) return choose(at);
    at = wholeCharacter(text, Math.min(Math.max(at + step, 0), text.length - 1));
    show('cursor', text.slice(at, at + lengthAt(text, at)));
    announce(visible(text.slice(at, at + lengthAt(text, at))));
  }
  if (changed === null) source.replaceChildren(text);
  else show('changed', changed.text);
  return source;
}

const lengthAt = (text: string, at: number) => ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);

/** Where the character begins of which this unit is a part. */
const wholeCharacter = (text: string, at: number) =>
  /^[\udc00-\udfff]$/.test(text[at] ?? '') ? Math.max(at - 1, 0) : at;

/** Which character of the element's text lies there; null where none does. */
function indexAt(element: HTMLElement, x: number, y: number): number | null {
  const caret = document.caretPositionFromPoint?.(x, y);
  // Older browsers have only this.
  const range = caret === undefined ? document.caretRangeFromPoint?.(x, y) : null;
  const node = caret?.offsetNode ?? range?.startContainer;
  const offset = caret?.offset ?? range?.startOffset ?? 0;
  if (!(node instanceof Text) || !element.contains(node)) return null;
  let before = 0;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text !== null && text !== node; text = walker.nextNode())
    before += (text as Text).length;
  // A caret stands between two characters: the one that lies under the pointer is meant.
  const under = [offset, offset - 1].find((i) => i >= 0 && i < node.length && lies(node, i, x, y));
  return under === undefined ? null : wholeCharacter(element.textContent ?? '', before + under);
}

function lies(node: Text, offset: number, x: number, y: number): boolean {
  const range = document.createRange();
  range.setStart(node, offset);
  range.setEnd(node, offset + 1);
  return [...range.getClientRects()].some(
    ({ left, right, top, bottom }) => x >= left && x <= right && y >= top && y <= bottom,
  );
}

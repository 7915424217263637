// Markdown as elements. `marked` splits the text into tokens; every token becomes an element or a text node here, so that no string of an
// answer is ever read as HTML. Images are not loaded: a link stands in their place.
import type { MarkedToken, Token, Tokens } from 'marked';
import { copyButton } from '../base/copy.ts';
import { type Child, el, type Writer } from '../base/dom.ts';

type Lexer = (text: string) => Token[];

/** Frames are left out where one takes longer than this part of the time between two. */
const REST = 4;

/** The renderer is loaded with the first answer. Without it answers are plain text. */
const loading = (): Promise<Lexer | null> =>
  import('marked').then(
    ({ lexer }) => lexer,
    () => null,
  );

/**
 * Shows a text as it comes. Blocks that have ended stay as they are; the last one is read again with every frame.
 * @param onShown runs after each frame.
 */
export function markdownInto(element: HTMLElement, onShown: () => void): Writer {
  let lexer: Lexer | null = null;
  const loaded = loading().then((found) => {
    lexer = found;
    // What was shown as plain text meanwhile is read again.
    waiting = open + waiting;
    open = '';
    later();
  });
  let waiting = '';
  /** What has come of the block that may go on. */
  let open = '';
  let openNodes: Node[] = [];
  let frame = 0;
  let rest_until_ms = 0;

  function show(whole: boolean): void {
    frame = 0;
    const began = performance.now();
    if (!whole && began < rest_until_ms) return later();
    if (waiting === '' && !whole) return;
    open += waiting;
    waiting = '';
    for (const node of openNodes) element.removeChild(node);
    openNodes = [];
    if (lexer === null) openNodes = [document.createTextNode(open)];
    else {
      const tokens = lexer(open);
      const ended = whole ? tokens : tokens.slice(0, endedBlocks(tokens));
      element.append(...ended.flatMap(block));
      const last = tokens.slice(ended.length);
      openNodes = last.flatMap(block);
      open = last.map(({ raw }) => raw).join('');
    }
    element.append(...openNodes);
    rest_until_ms = performance.now() + (performance.now() - began) * REST;
    onShown();
  }
  const later = () => {
    frame ||= requestAnimationFrame(() => show(false));
  };
  return {
    write(text) {
      // As the lexer has it, so that what is left over can be cut by length.
      waiting += text.replace(/\r\n?/g, '\n');
      later();
    },
    async end() {
      await loaded;
      cancelAnimationFrame(frame);
      show(true);
    },
  };
}

/** A block can still grow, and so can the white space before it. */
function endedBlocks(tokens: readonly Token[]): number {
  const last = tokens.findLastIndex(({ type }) => type !== 'space');
  return Math.max(last, 0);
}

function block(given: Token): Node[] {
  const token = given as MarkedToken;
  switch (token.type) {
    case 'space':
    case 'def':
      return [];
    case 'heading':
      // Below the page's own headings.
      return [el(`h${Math.min(token.depth + 2, 6) as 3 | 4 | 5 | 6}`, {}, ...inline(token.tokens))];
    case 'code':
      return [codeBlock(token)];
    case 'blockquote':
      return [el('blockquote', {}, ...token.tokens.flatMap(block))];
    case 'list':
      return [list(token)];
    case 'hr':
      return [el('hr')];
    case 'table':
      return [table(token)];
    case 'text':
      return inline(token.tokens ?? [token]);
    case 'paragraph':
      return [el('p', {}, ...inline(token.tokens))];
    default:
      return [el('p', {}, token.raw)];
  }
}

function codeBlock({ text, lang }: Tokens.Code): HTMLElement {
  return el(
    'figure',
    { class: 'code' },
    el(
      'figcaption',
      {},
      lang ?? '',
      copyButton('Copy code', () => text),
    ),
    el('pre', { tabindex: 0, 'aria-label': 'Code' }, el('code', {}, text)),
  );
}

function list({ ordered, start, items }: Tokens.List): HTMLElement {
  const children = items.map(({ tokens, task, checked }) =>
    el(
      'li',
      {},
      task ? (checked === true ? '☑ ' : '☐ ') : null,
      ...tokens.filter(({ type }) => type !== 'checkbox').flatMap(block),
    ),
  );
  return ordered ? el('ol', { start: start === '' ? 1 : start }, ...children) : el('ul', {}, ...children);
}

function table({ header, rows }: Tokens.Table): HTMLElement {
  const cells = (tag: 'th' | 'td', row: readonly Tokens.TableCell[]) =>
    el('tr', {}, ...row.map(({ tokens, align }) => el(tag, { 'data-align': align }, ...inline(tokens))));
  return el(
    'div',
    { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table' },
    el('table', {}, el('thead', {}, cells('th', header)), el('tbody', {}, ...rows.map((row) => cells('td', row)))),
  );
}

function inline(tokens: readonly Token[]): Node[] {
  return tokens.map((given): Node => {
    const token = given as MarkedToken;
    switch (token.type) {
      case 'strong':
      case 'em':
      case 'del':
        return el(token.type, {}, ...inline(token.tokens));
      case 'codespan':
        return el('code', {}, token.text);
      case 'br':
        return el('br');
      case 'link':
        return link(token.href, inline(token.tokens));
      case 'image':
        return link(token.href, [document.createTextNode(`[image: ${token.text || 'without a description'}]`)]);
      case 'escape':
      case 'text':
        return document.createTextNode(token.text);
      default:
        return document.createTextNode(token.raw);
    }
  });
}

/** Anything but the web and mail stays text. */
function link(href: string, children: readonly Child[]): HTMLElement {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return el('span', {}, ...children);
  return el('a', { href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children);
}

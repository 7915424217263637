// Makes elements. Text becomes text nodes and nothing else: no string of this page is ever read as markup.

type Handlers = { readonly [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
interface Props {
  /** Attributes by name; false, null and undefined leave one out, true sets it empty. */
  readonly [attribute: string]: string | number | boolean | null | undefined | Handlers;
  readonly on?: Handlers;
}
export type Child = Node | string | null | undefined | false;

/** Makes one element, with its attributes, listeners and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === 'on') for (const [type, run] of Object.entries(value as Handlers)) listen(element, type, run);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(
    ...children.filter((child): child is Node | string =>
      typeof child === 'object' ? child !== null : typeof child === 'string',
    ),
  );
  return element;
}

function listen(element: HTMLElement, type: string, run: unknown): void {
  element.addEventListener(type, run as EventListener);
}

/** The element of the document that has this id. @throws {TypeError} where the document is not the one this was written for. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (element === null) throw new TypeError(`the document has no #${id}`);
  return element as T;
}

/** Said by screen readers, once. */
export function announce(text: string): void {
  byId('status').textContent = text;
}

/** Only for screen readers. */
export const hidden = (text: string): HTMLElement => el('span', { class: 'away' }, text);

export interface Writer {
  write(text: string): void;
  /** Shows what still waits, and that it is all. */
  end(): Promise<void>;
}

/** Adds text to an element once a frame, however fast it comes. `onShown` runs after each. */
export function writerInto(element: HTMLElement, onShown: () => void): Writer {
  let waiting = '';
  let frame = 0;
  function show(): void {
    frame = 0;
    if (waiting === '') return;
    element.append(waiting);
    waiting = '';
    onShown();
  }
  return {
    write(text) {
      waiting += text;
      frame ||= requestAnimationFrame(show);
    },
    async end() {
      cancelAnimationFrame(frame);
      show();
    },
  };
}

// The list of checks: one row each, appearing one by one, with what it means and what was seen.
import type { Check } from '../../verify/index.ts';
import { el, hidden, pause, still } from '../dom.ts';
import { GROUPS, WORDS } from './words.ts';

/** Between two rows. The checks themselves take a few milliseconds: this is for people to follow. */
const STEP_MS = 55;

const MARK = { pass: '✓', fail: '✕', skip: '–' } as const;
const SPOKEN = { pass: 'Passed', fail: 'Failed', skip: 'Skipped' } as const;

export interface CheckListView {
  readonly element: HTMLElement;
  /** Shows these checks; `device` is what a device is called here. Resolves when the last one is there, or false when another call came between. */
  show(checks: readonly Check[], device: string, slowly: boolean): Promise<boolean>;
}

export function createCheckList(): CheckListView {
  const element = el('div', { class: 'checks' });
  let before = new Map<string, Check['status']>();
  let turn = 0;
  return {
    element,
    async show(checks, device, slowly) {
      const mine = ++turn;
      const lists = GROUPS.map(([title, names]) => {
        const list = el('ol', { 'aria-label': title });
        return { names, list, group: el('section', {}, el('h3', {}, title), list) };
      });
      const previous = before;
      before = new Map(checks.map((check) => [keyOf(check), check.status]));
      element.replaceChildren(...lists.map(({ group }) => group));
      for (const check of checks) {
        const was = previous.get(keyOf(check));
        const group = lists.find(({ names }) => names.includes(check.name));
        group?.list.append(row(check, device, slowly ? 'arriving' : was === check.status ? '' : 'changed'));
        if (slowly && !still()) await pause(STEP_MS);
        if (mine !== turn) return false;
      }
      for (const { group, list } of lists) group.hidden = list.childElementCount === 0;
      return true;
    },
  };
}

const keyOf = ({ name, device = 0 }: Check) => `${name}[${device}]`;

function row(check: Check, called: string, motion: string): HTMLElement {
  const { name, status, code, detail, device } = check;
  const { title, meaning } = WORDS[name];
  const seen = code === undefined ? detail : `${code}: ${detail}`;
  return el(
    'li',
    { class: `check ${status} ${motion}`, 'data-check': name, 'data-status': status },
    el('span', { class: 'mark', 'aria-hidden': 'true' }, MARK[status]),
    el(
      'div',
      {},
      el(
        'p',
        { class: 'title' },
        hidden(`${SPOKEN[status]}: `),
        title,
        device === undefined ? null : el('span', { class: 'device' }, ` ${called} ${device}`),
        status === 'skip' ? el('span', { class: 'device', 'aria-hidden': 'true' }, ' skipped') : null,
      ),
      el('p', { class: 'meaning' }, meaning),
      el('p', { class: 'seen' }, el('code', {}, name), ` ${seen}`),
    ),
  );
}

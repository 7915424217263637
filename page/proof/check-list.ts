// The list of checks: a row each, with what it means and what was seen.
import type { Check } from '../../verify/index.ts';
import { el, hidden } from '../base/dom.ts';
import { isUnchecked } from './verdict.ts';
import { GROUPS, WORDS } from './words.ts';

const MARK = { pass: '✓', fail: '✕', skip: '–', unchecked: '?' } as const;
const SPOKEN = { pass: 'Passed', fail: 'Failed', skip: 'Skipped', unchecked: 'Not possible here' } as const;

/** @param device what a device is called here. */
export function checkList(checks: readonly Check[], device: string): HTMLElement {
  const groups = GROUPS.map(([title, names]) => {
    const rows = checks.filter(({ name }) => names.includes(name)).map((check) => row(check, device));
    return rows.length === 0
      ? null
      : el('section', {}, el('h3', {}, title), el('ol', { 'aria-label': title }, ...rows));
  });
  return el('div', { class: 'checks' }, ...groups);
}

function row(check: Check, called: string): HTMLElement {
  const { name, code, detail, device } = check;
  const status = isUnchecked(check) ? 'unchecked' : check.status;
  const { title, meaning } = WORDS[name];
  const seen = code === undefined ? detail : `${code}: ${detail}`;
  return el(
    'li',
    { class: `check ${status}`, 'data-check': name, 'data-status': status },
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

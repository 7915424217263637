// Tampering for experts: choose a part of the attestation and a byte of it, change it, see which check fails, undo.
import type { Attestation, Check } from '../../verify/index.ts';
import { el, hidden } from '../base/dom.ts';
import { otherByte, type Part, partsToDamage, shown, withPart } from './damage.ts';
import { type Subject, withAttestation } from './subject.ts';
import { WORDS } from './words.ts';

/** Bytes to the left and to the right of the one that is changed. */
const AROUND = 18;

/** @param check shows how the checks go for what is now there, and returns them. */
export function tamperBench(
  original: Subject,
  attestation: Attestation,
  check: (subject: Subject, attestation: Attestation) => Promise<readonly Check[]>,
): HTMLElement {
  const parts = partsToDamage(attestation);
  const [first] = parts;
  if (first === undefined) return el('div');
  let part: Part = first;
  let changed = false;
  const name = `part-${crypto.randomUUID()}`;
  const position = el('input', {
    type: 'number',
    min: 0,
    value: part.suggested,
    inputmode: 'numeric',
    on: { input: preview },
  });
  const slider = el('input', {
    type: 'range',
    min: 0,
    value: part.suggested,
    'aria-label': 'Which byte',
    on: { input: slide },
  });
  const before = el('code', { class: 'window' });
  const after = el('code', { class: 'window' });
  const change = button('Change this byte', damage);
  const undo = button('Undo', restore);
  undo.disabled = true;
  const said = el('p', { class: 'said', 'aria-live': 'polite' });

  const choices = parts.map((one) => {
    const radio = el('input', { type: 'radio', name, value: one.name, on: { change: () => choose(one) } });
    radio.checked = one === part;
    return el('label', { class: 'choice' }, radio, el('span', {}, one.label));
  });

  function choose(one: Part): void {
    part = one;
    slider.max = position.max = String(part.bytes.length - 1);
    position.value = slider.value = String(part.suggested);
    preview();
  }
  function slide(): void {
    position.value = slider.value;
    preview();
  }
  function at(): number {
    const value = Math.floor(Number(position.value));
    return Number.isFinite(value) ? Math.min(Math.max(value, 0), part.bytes.length - 1) : 0;
  }
  function damaged(): Uint8Array {
    const bytes = part.bytes.slice();
    bytes[at()] = otherByte(bytes[at()] ?? 0, part);
    return bytes;
  }
  function preview(): void {
    slider.value = String(at());
    before.replaceChildren(...windowAround(at(), 'now: ', part.bytes, part));
    after.replaceChildren(...windowAround(at(), 'then: ', damaged(), part));
  }
  async function damage(): Promise<void> {
    const i = at();
    const [was, is] = [part.bytes, damaged()].map((bytes) => shown(bytes.subarray(i, i + 1), part));
    changed = true;
    undo.disabled = false;
    const copy = withPart(attestation, part, damaged());
    const checks = await check(withAttestation(original, copy), copy);
    said.textContent = `Byte ${i} of ${part.label} changed from ${was} to ${is}. ${failedIn(checks)} noticed.`;
  }
  async function restore(): Promise<void> {
    if (!changed) return;
    changed = false;
    said.textContent = 'Undone.';
    await check(original, attestation);
    change.focus();
    undo.disabled = true;
  }
  choose(part);

  return el(
    'details',
    { class: 'fold tamper' },
    el('summary', {}, 'Change any byte (for experts)'),
    el(
      'p',
      { class: 'meaning' },
      'Pick a part and a byte. Your copy is changed, the checks run again, and the ones that notice turn red.',
    ),
    el('fieldset', {}, el('legend', {}, 'Part'), ...choices),
    el('p', { class: 'field' }, el('label', {}, 'Byte ', position), slider),
    el('p', { class: 'windows' }, before, el('span', { 'aria-hidden': 'true' }, '→'), after),
    el('p', { class: 'actions' }, change, undo),
    said,
  );
}

const button = (text: string, run: () => Promise<void>) =>
  el('button', { type: 'button', class: 'quiet', on: { click: () => void run() } }, text);

/** The bytes around the one at `i`, which is marked. */
function windowAround(i: number, label: string, bytes: Uint8Array, part: Part): readonly (Node | string)[] {
  const cut = (from: number, to: number) => shown(bytes.subarray(Math.max(from, 0), Math.min(to, bytes.length)), part);
  const gap = part.binary ? ' ' : '';
  const around = part.binary ? AROUND / 3 : AROUND;
  return [
    hidden(label),
    `${cut(i - around, i)}${gap}`,
    el('mark', {}, cut(i, i + 1)),
    `${gap}${cut(i + 1, i + 1 + around)}`,
  ];
}

function failedIn(checks: readonly Check[]): string {
  const failed = new Set(checks.filter(({ status }) => status === 'fail').map(({ name }) => `“${WORDS[name].title}”`));
  return failed.size === 0 ? 'No check' : [...failed].join(', ');
}

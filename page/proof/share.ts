// A link to a proof holds everything that was signed, so the page says what that is first, and offers less.
import type { Attestation } from '../../verify/index.ts';
import { copyButton } from '../base/copy.ts';
import { el } from '../base/dom.ts';
import { download } from './keep.ts';
import { linkTo } from './link.ts';
import { answerOf, conversationIn } from './signed-text.ts';
import type { Subject } from './subject.ts';

/** @returns a button, and what it opens. */
export function shareView(subject: Subject, attestation: Attestation): HTMLElement[] {
  const warning = el('p', {}, '…');
  const found = conversationIn(attestation.raw);
  const answer = found === null ? undefined : answerOf(found);
  const link = () => linkTo(subject, location.origin);
  const panel = el(
    'div',
    { class: 'share', hidden: true },
    warning,
    el(
      'p',
      { class: 'actions' },
      copyButton('Copy the whole link', link),
      answer === undefined ? null : copyButton('Copy only this answer, without its proof', () => answer.text),
      download('Download a file instead', `${subject.name}.json`, JSON.stringify(attestation), 'small'),
    ),
  );
  async function open(): Promise<void> {
    panel.hidden = !panel.hidden;
    button.setAttribute('aria-expanded', String(!panel.hidden));
    const messages = (found?.request.length ?? 0) + (found?.response.length ?? 0);
    warning.textContent = `${held(messages)} ${await sizeOf(link)} Everybody who has the link can read it.`;
    panel.scrollIntoView({ block: 'nearest' });
  }
  const button = el(
    'button',
    { type: 'button', class: 'small', 'aria-expanded': 'false', on: { click: () => void open() } },
    'Copy link …',
  );
  return [button, panel];
}

const held = (messages: number) =>
  messages > 2
    ? `The GPU signed the whole conversation, so the link holds all ${messages} messages, the earlier ones too.`
    : 'The link holds your question and this answer.';

async function sizeOf(link: () => Promise<string>): Promise<string> {
  try {
    return `It is ${Math.ceil((await link()).length / 1000)} KB long.`;
  } catch (error) {
    if (error instanceof RangeError) return 'It would be too long for an address: take the file.';
    throw error;
  }
}

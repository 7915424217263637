// One proof on the page: its verdict in view, and everything behind it closed below.
import type { Attestation, VerificationReport } from '../../verify/index.ts';
import { announce, el, hidden } from '../base/dom.ts';
import { checkList } from './check-list.ts';
import { exchangeView } from './exchange.ts';
import { factsView } from './facts.ts';
import { keepView } from './keep.ts';
import { shareView } from './share.ts';
import { attestationIn, type Subject } from './subject.ts';
import { type Bubbles, tamperBubbles } from './tamper.ts';
import { tamperBench } from './tamper-bench.ts';
import { type Claim, type ClaimState, type Conclusion, concluded, STEPS, tally } from './verdict.ts';
import { type Settings, verify } from './verifier.ts';
import { BADGES, ICONS, SHORT_BADGES } from './words.ts';

export interface Proof {
  readonly element: HTMLElement;
  /** Checks it and shows how that went. @returns false where a root is unknown that the service may have changed meanwhile. */
  run(settings: Settings): Promise<boolean>;
  /** Folds it to one line, for a proof that is no longer the newest. */
  fold(): void;
}

const MARK: Readonly<Record<ClaimState, string>> = { proven: '✓', open: '○', unchecked: '?', wrong: '✕' };
const STATE: Readonly<Record<ClaimState, string>> = {
  proven: 'proven',
  open: 'not proven',
  unchecked: 'not checked',
  wrong: 'wrong',
};

const CHECKING = 'Checking the proof';
let count = 0;

/**
 * @param bubbles where question and answer stand on the page; null where they do not.
 * @param open whether it is more than one line at first. What is wrong always is.
 */
export function createProof(original: Subject, bubbles: Bubbles | null, { open }: { readonly open: boolean }): Proof {
  const attestation = attestationIn(original);
  const actions = el('div', { class: 'actions' });
  const summary = el('summary', {}, 'Details');
  const behind = el('div', { class: 'behind' });
  const more = el('details', { class: 'fold more' }, summary, behind);
  const { element, card, sentence, show } = createCard(open, actions, more);
  let settings: Settings;
  let turn = 0;

  /** @returns null where another check of the same proof came between, or the verifier could not run. */
  async function check(subject: Subject, copy: Attestation | null): Promise<VerificationReport | null> {
    const mine = ++turn;
    let report: VerificationReport;
    try {
      report = await verify(subject, settings, fetching);
    } catch (error) {
      cannotRun(error instanceof Error ? error.message : 'no reason given');
      return null;
    }
    if (mine !== turn) return null;
    summary.textContent = `Details: ${tally(report.checks)}`;
    show(concluded(report, subject, new Date()));
    const list = checkList(report.checks, report.claims.simulated ? 'simulated GPU' : 'device');
    const shown = behind.querySelector<HTMLDetailsElement>('.exchange');
    behind.querySelector('.results')?.replaceChildren(list, factsView(report));
    if (shown !== null && copy !== null) {
      const next = exchangeView(subject, copy);
      next.open = shown.open;
      shown.replaceWith(next);
    }
    return report;
  }

  function fetching(what: string): void {
    sentence.textContent = `Fetching ${new URL(what).pathname.replace(/.*\//, '')} …`;
  }

  function cannotRun(reason: string): void {
    show({
      verdict: 'unchecked',
      badge: BADGES.unchecked,
      short: SHORT_BADGES.unchecked,
      sentence: `The verifier could not run: ${reason}.`,
      claims: [],
      ladder: null,
    });
  }

  card.addEventListener('toggle', () => {
    if (card.open && settings !== undefined && !open) element.scrollIntoView({ block: 'nearest' });
  });

  return {
    element,
    async run(given) {
      settings = given;
      const first = behind.childElementCount === 0;
      const report = await check(original, null);
      if (first) {
        behind.append(el('div', { class: 'results' }));
        if (report !== null) {
          behind
            .querySelector('.results')
            ?.append(checkList(report.checks, report.claims.simulated ? 'simulated GPU' : 'device'), factsView(report));
          if (attestation !== null) addTampering(attestation);
        }
        const simulated = (report?.claims.simulated ?? false) || settings.simulatedRoots !== '';
        behind.append(keepView(original, attestation, simulated, settings.release ?? null));
        element.dataset.complete = 'yes';
      }
      return report?.checks.every(({ code }) => code !== 'simulated_root_refused' && code !== 'untrusted_root') ?? true;
    },
    fold() {
      card.open = false;
    },
  };

  function addTampering(held: Attestation): void {
    const recheck = async (subject: Subject, copy: Attestation) => (await check(subject, copy))?.checks ?? [];
    if (bubbles !== null) actions.append(...tamperBubbles(original, held, bubbles, recheck));
    actions.append(...shareView(original, held));
    behind.append(exchangeView(original, held), tamperBench(original, held, recheck));
  }
}

/** What is in view of a proof: its verdict, with `below` under it. */
function createCard(open: boolean, ...below: readonly HTMLElement[]) {
  const id = `proof-${++count}`;
  const icon = el('span', { class: 'icon', 'aria-hidden': 'true' }, ICONS.running);
  const badge = el('h2', { id, class: 'verdict-title', tabindex: -1 }, CHECKING);
  const sentence = el('p', { class: 'verdict-text' }, 'The verifier runs in this browser.');
  const claims = el('ul', { class: 'claims' });
  const ladder = el('div', { class: 'steps' });
  const card = el(
    'details',
    { class: 'card', open, on: { toggle: nameBadge } },
    el('summary', { class: 'verdict' }, icon, badge),
    sentence,
    claims,
    ladder,
    ...below,
  );
  const element = el('section', { class: 'proof', 'aria-labelledby': id, 'data-verdict': 'running' }, card);
  let names = { long: CHECKING, short: CHECKING };

  function nameBadge(): void {
    badge.textContent = card.open ? names.long : names.short;
  }

  function show(conclusion: Conclusion): void {
    const { verdict } = conclusion;
    icon.textContent = ICONS[verdict];
    names = { long: conclusion.badge, short: conclusion.short };
    if (verdict === 'invalid') card.open = true;
    nameBadge();
    sentence.textContent = conclusion.sentence;
    claims.replaceChildren(...conclusion.claims.map(claimView));
    ladder.replaceChildren(...ladderView(conclusion));
    element.dataset.verdict = verdict;
    performance.mark('verdict');
    announce(`${conclusion.badge}. ${conclusion.sentence}`);
  }

  return { element, card, sentence, show };
}

function claimView({ title, state, text }: Claim): HTMLElement {
  return el(
    'li',
    { class: 'claim', 'data-claim': title, 'data-state': state },
    el('span', { class: 'mark', 'aria-hidden': 'true' }, MARK[state]),
    el('p', {}, el('strong', {}, title), el('span', { class: 'state-word' }, ` ${STATE[state]}`), hidden(': ')),
    el('p', { class: 'claim-text' }, text),
  );
}

function ladderView({ ladder }: Conclusion): HTMLElement[] {
  if (ladder === null) return [];
  const steps = STEPS.map((name, i) =>
    el(
      'li',
      { class: i < ladder.reached ? 'reached' : '', 'aria-current': i === ladder.reached - 1 ? 'step' : null },
      name,
      hidden(i < ladder.reached ? ', reached' : ', not reached'),
    ),
  );
  return [
    el('ol', { class: 'ladder', 'aria-label': 'How much is proven' }, ...steps),
    el('p', { class: 'next' }, ladder.next),
  ];
}

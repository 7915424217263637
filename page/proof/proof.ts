// One proof on the page: its verdict, its checks, what is proven and what is not, and everything to look at and to take along.
import type { Check, CheckName, VerificationReport } from '../../verify/index.ts';
import { ageInWords } from '../../verify/verdict.ts';
import { announce, el, follow } from '../dom.ts';
import { createCheckList } from './check-list.ts';
import { exchangeView } from './exchange.ts';
import { keepView } from './keep.ts';
import { attestationIn, type Subject } from './subject.ts';
import { tamperView } from './tamper.ts';
import { type Result, type Settings, type Verdict, verdictOf, verify } from './verifier.ts';
import { VERDICTS, WORDS } from './words.ts';

export interface Proof {
  readonly element: HTMLElement;
  /** Checks it and shows how that went. */
  run(): Promise<void>;
  /** Folds the list of checks, for a proof that is no longer the newest. */
  fold(): void;
}

let count = 0;

export function createProof(original: Subject, settings: () => Settings): Proof {
  const id = `proof-${++count}`;
  const list = createCheckList();
  const title = el('h2', { id, class: 'verdict-title', tabindex: -1 }, 'Checking the proof');
  const said = el('p', { class: 'verdict-text' }, 'The verifier runs in this browser.');
  const numbers = el('p', { class: 'verdict-numbers' });
  const verdict = el('header', { class: 'verdict' }, title, said, numbers);
  const summary = el('summary', {}, 'Every check');
  const checks = el('details', { class: 'fold', open: true }, summary, list.element);
  const claims = el('div', { class: 'claims' });
  const element = el(
    'section',
    { class: 'proof', 'aria-labelledby': id, 'data-verdict': 'running' },
    verdict,
    checks,
    claims,
  );

  /** @returns null where another check of the same proof came between, or the verifier itself could not run. */
  async function check(subject: Subject, slowly: boolean): Promise<VerificationReport | null> {
    element.dataset.verdict = 'running';
    title.textContent = 'Checking the proof';
    let result: Result;
    try {
      result = await verify(subject, settings(), fetching);
    } catch (error) {
      show('incomplete', `The verifier could not run: ${error instanceof Error ? error.message : 'no reason given'}.`);
      return null;
    }
    const { report, took_ms } = result;
    summary.textContent = tally(report.checks);
    if (!(await list.show(report.checks, report.claims.simulated ? 'simulated GPU' : 'device', slowly))) return null;
    const kind = verdictOf(report);
    numbers.textContent = `level ${report.level} · ${tally(report.checks)} · ${took_ms.toFixed(0)} ms in this browser`;
    claims.replaceChildren(...claimsOf(report));
    show(kind, verdictText(kind, report));
    return report;
  }

  function fetching(what: string): void {
    numbers.textContent = `Fetching ${new URL(what).pathname.replace(/.*\//, '')} …`;
  }

  function show(kind: Verdict, text: string): void {
    title.textContent = VERDICTS[kind].title;
    said.textContent = text;
    element.dataset.verdict = kind;
    announce(`${title.textContent}. ${text}`);
  }

  return {
    element,
    async run() {
      follow(verdict);
      const report = await check(original, true);
      const attestation = attestationIn(original);
      if (report !== null && attestation !== null) {
        let shown = exchangeView(original, attestation);
        const bench = tamperView(original, attestation, async (subject, copy) => {
          checks.open = true;
          const next = exchangeView(subject, copy);
          next.open = shown.open;
          shown.replaceWith(next);
          shown = next;
          return (await check(subject, false))?.checks ?? [];
        });
        checks.after(bench);
        element.append(shown);
      }
      element.append(
        keepView(
          original,
          attestation,
          report?.claims.simulated ?? (settings().service?.simulated_root ?? null) !== null,
        ),
      );
    },
    fold() {
      checks.open = false;
    },
  };
}

/** What the visitor can choose not to have checked. */
const LEFT_OUT: readonly CheckName[] = ['revocation', 'reference_values'];

/** For a valid proof the verifier's own words; for another the check that failed first. */
function verdictText(kind: Verdict, { checks, proven }: VerificationReport): string {
  const failed = checks.find(({ status }) => status === 'fail');
  if (failed !== undefined) return `${WORDS[failed.name].title}: no, ${failed.detail}. ${VERDICTS[kind].text}`;
  if (kind !== 'valid') return VERDICTS[kind].text;
  const left = checks.filter(({ name, status }) => status === 'skip' && LEFT_OUT.includes(name));
  const titles = left.map(({ name }) => `“${WORDS[name].title}”`).join(', ');
  return `${proven[0] ?? ''}${titles === '' ? '' : ` Left out, as you asked: ${titles}.`}`;
}

function tally(checks: readonly Check[]): string {
  const count = (status: Check['status']) => checks.filter((check) => check.status === status).length;
  const failed = count('fail');
  return `${checks.length} checks: ${count('pass')} passed, ${failed === 0 ? '' : `${failed} failed, `}${count('skip')} skipped`;
}

function claimsOf({ proven, not_proven, claims }: VerificationReport): HTMLElement[] {
  const list = (title: string, kind: string, texts: readonly string[]) =>
    el('section', { class: kind }, el('h3', {}, title), el('ul', {}, ...texts.map((text) => el('li', {}, text))));
  const facts: [string, string][] = [];
  if (claims.time !== null)
    facts.push([
      'Time',
      `${new Date(claims.time).toLocaleString()}, ${ageInWords(claims.time, new Date())}, by the gateway's clock`,
    ]);
  if (claims.batch !== null) facts.push(['Answers under this nonce', `${claims.batch.tree_size}`]);
  for (const { model, driver, vbios, mode, ueid } of claims.devices) {
    facts.push([claims.simulated ? 'Device (simulated)' : 'Device', model]);
    facts.push([
      'Driver and VBIOS',
      `${driver ?? 'not said'}, ${vbios ?? 'not said'}${mode === null ? '' : `, mode ${mode}`}`,
    ]);
    facts.push(['Device id', ueid]);
  }
  if (claims.cpu !== null) {
    const { type, product, measurement } = claims.cpu;
    const kind = `${type}${product === null ? '' : `, ${product}`}`;
    facts.push([claims.cpu.simulated ? 'Processor (simulated)' : 'Processor', kind]);
    facts.push(['Launch measurement', measurement]);
  }
  if (claims.token !== null)
    facts.push([
      'Token',
      `${claims.token.kind}, ${claims.token.signature ?? 'signature not checked'}, in the name of ${claims.token.issuer}`,
    ]);
  return [
    ...(proven.length > 0 ? [list('Proven', 'proven', proven)] : []),
    list('Not proven', 'not-proven', not_proven),
    el(
      'section',
      { class: 'facts' },
      el('h3', {}, 'What it says of itself'),
      el('dl', {}, ...facts.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
    ),
  ].filter((section) => section.querySelector('li, dt') !== null);
}

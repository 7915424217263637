// The verdict for people: one badge and one sentence, four claims, and the step of the ladder that was reached.

import type { ReleaseClaims } from '../../verify/common/release-options.ts';
import { releaseSentence } from '../../verify/cpu/cpu-words.ts';
import { type Check, type CheckName, isUnavailable, type Level, type VerificationReport } from '../../verify/index.ts';
import { ageInWords } from '../../verify/policy/verdict.ts';
import type { Subject } from './subject.ts';
import { BADGES, READABLE, SHORT_BADGES, WORDS } from './words.ts';

/**
 * `simulated`: valid, about no hardware. `unchecked`: nothing was found wrong, but something could not be checked here.
 * `foreign`: no proof at all.
 */
type Verdict = 'valid' | 'simulated' | 'unchecked' | 'invalid' | 'foreign';

export type ClaimState = 'proven' | 'open' | 'unchecked' | 'wrong';

export interface Claim {
  readonly title: string;
  readonly state: ClaimState;
  readonly text: string;
}

export interface Conclusion {
  readonly verdict: Verdict;
  readonly badge: string;
  /** The badge in one or two words. */
  readonly short: string;
  readonly sentence: string;
  readonly claims: readonly Claim[];
  readonly ladder: Ladder;
}

/** Who signed may be unknown here: another service's simulator, or a root that is newer than this page. */
const rootUnknown = ({ code }: Check): boolean => code === 'untrusted_root' || code === 'simulated_root_refused';

/** A check that did not pass, and found nothing wrong. */
export const isUnchecked = (check: Check): boolean =>
  check.status === 'fail' && (isUnavailable(check) || rootUnknown(check));

const isWrong = (check: Check): boolean => check.status === 'fail' && !isUnchecked(check);

/** @param brought whether a visitor brought it: what an answer carries in place of a proof is a wrong proof. */
function verdictOf({ valid, checks, claims }: VerificationReport, brought: boolean): Verdict {
  if (valid) return claims.simulated ? 'simulated' : 'valid';
  const [first] = checks.filter(({ status }) => status === 'fail');
  if (brought && (first?.code === 'not_json' || first?.code === 'not_an_attestation')) return 'foreign';
  return checks.some(isWrong) ? 'invalid' : 'unchecked';
}

export function concluded(report: VerificationReport, subject: Subject, now: Date): Conclusion {
  const verdict = verdictOf(report, !subject.asked);
  const name = verdict === 'valid' ? report.level : verdict;
  const [badge, short] = [BADGES[name], SHORT_BADGES[name]];
  if (verdict === 'foreign') return { verdict, badge, short, sentence: READABLE, claims: [], ladder: null };
  const view: View = { report, subject, verdict };
  const claims = [whoSigned(view), whatWasSigned(view), whichSoftware(view), whenSigned(view, now)];
  return { verdict, badge, short, sentence: sentenceOf(view), claims, ladder: ladderOf(view) };
}

/** What another site shows: a visitor takes it for a verdict on an answer, so a GPU must have signed one. */
export function onBadge(report: VerificationReport, subject: Subject, now: Date) {
  if (subject.kind !== 'attestation')
    return {
      verdict: 'foreign',
      badge: BADGES.other,
      sentence: 'It proves no answer. Open it to see what it is.',
    } as const;
  const { verdict, badge, sentence } = concluded(report, subject, now);
  return { verdict: verdict === 'valid' && report.level === 'none' ? 'foreign' : verdict, badge, sentence };
}

interface View {
  readonly report: VerificationReport;
  readonly subject: Subject;
  readonly verdict: Verdict;
}

function sentenceOf({ report, verdict, subject }: View): string {
  const wrong = report.checks.find(isWrong);
  if (wrong !== undefined) return `${failureOf(wrong)} Do not rely on it.`;
  const unchecked = report.checks.find(isUnchecked);
  if (unchecked !== undefined)
    return `What could be checked is right. ${uncheckedText(unchecked)}${subject.asked ? '' : elsewhere(unchecked)}`;
  if (verdict === 'simulated')
    return 'Nothing was changed. But a simulator signed it, so it proves nothing about hardware.';
  const left = report.checks.filter(({ name, status }) => status === 'skip' && LEFT_OUT.includes(name));
  const titles = left.map(({ name }) => `“${WORDS[name].title}”`).join(', ');
  const what = subject.kind === 'attestation' ? 'exactly this question and this answer' : 'what this file says';
  const who = report.level === 'none' ? 'The signatures fit' : `A genuine ${makersOf(report)} signed ${what}`;
  return `${who}.${titles === '' ? '' : ` Left out, as you asked: ${titles}.`}`;
}

const failureOf = ({ name, code }: Check): string =>
  code === 'release_withdrawn' ? 'The release was withdrawn.' : WORDS[name].failure;

/** What the visitor can choose not to have checked. */
const LEFT_OUT: readonly CheckName[] = ['revocation', 'reference_values'];

function uncheckedText(check: Check): string {
  if (check.code === 'simulated_root_refused') return 'A simulator signed it that this service does not know.';
  if (check.code === 'untrusted_root') return 'This page does not know the root that its signatures lead to.';
  if (check.name === 'release') return 'This service shows no release now. Drop the release.json that you have of it.';
  if (check.name === 'release_status')
    return 'Nothing shows whether the release was withdrawn. Name its tag as well: OWNER/REPO@TAG.';
  const what = check.name === 'reference_values' ? 'NVIDIA’s reference values' : 'what its makers say of it';
  return `The page could not get ${what} just now. Try again later.`;
}

/** What to do with a proof that another service made. */
function elsewhere(check: Check): string {
  return rootUnknown(check) ? ' Open it on the page of the service that made it.' : '';
}

function makersOf({ claims, level }: VerificationReport): string {
  const models = [...new Set(claims.devices.map(({ model }) => model))].join(', ');
  const gpu = claims.devices.length === 0 ? 'NVIDIA GPU' : `NVIDIA GPU (${models})`;
  return level === 'gpu+cpu' || level === 'measured'
    ? `${gpu} and a key that a ${claims.cpu?.type ?? ''} guest named`
    : gpu;
}

// The claims.

const OF_THE_SIGNER: readonly CheckName[] = [
  ...(['token_shape', 'token_result', 'token_signature', 'report_form', 'report_signature', 'report_chain'] as const),
  ...(['report_fwid', 'revocation', 'token_report_match', 'device_mode', 'topology'] as const),
  ...(['cpu_form', 'cpu_signature', 'cpu_chain', 'cpu_identity', 'cpu_revocation', 'cpu_vtpm'] as const),
];
const OF_THE_TEXT: readonly CheckName[] = [
  ...([
    'form',
    'raw_hash',
    'raw_members',
    'expected_exchange',
    'token_nonce',
    'token_digests',
    'report_nonce',
  ] as const),
  ...(['cpu_answer', 'cpu_binding', 'cpu_devices'] as const),
];
const OF_THE_SOFTWARE: readonly CheckName[] = [
  ...(['reference_values', 'cpu_mode', 'cpu_tcb', 'cpu_measurement', 'cpu_software', 'cpu_weights'] as const),
  // The only rule of this page is that the guest is one of the release.
  ...(['release', 'release_status', 'policy'] as const),
];

/** The claim that a failed check makes; null where none of these failed. */
function failed({ report }: View, title: string, names: readonly CheckName[]): Claim | null {
  const its = report.checks.filter(({ name }) => names.includes(name));
  const wrong = its.find(isWrong);
  if (wrong !== undefined) return { title, state: 'wrong', text: failureOf(wrong) };
  const unchecked = its.find(isUnchecked);
  return unchecked === undefined ? null : { title, state: 'unchecked', text: uncheckedText(unchecked) };
}

function whoSigned(view: View): Claim {
  const title = 'Who signed';
  const { report, subject } = view;
  const found = failed(view, title, OF_THE_SIGNER);
  if (found !== null) return found;
  if (report.claims.simulated) return { title, state: 'open', text: 'A simulator in software, not a GPU.' };
  if (report.level !== 'none') return { title, state: 'proven', text: `A genuine ${makersOf(report)}.` };
  if (subject.kind === 'cpu' && report.valid)
    return { title, state: 'proven', text: `A genuine ${report.claims.cpu?.type ?? ''} processor, and no GPU.` };
  return { title, state: 'open', text: 'No genuine GPU that could be recognized.' };
}

function whatWasSigned(view: View): Claim {
  const title = 'What';
  const { report, subject, verdict } = view;
  const found = failed(view, title, OF_THE_TEXT);
  if (found !== null) return found;
  if (verdict === 'invalid') return { title, state: 'open', text: 'The text fits, but the signature does not count.' };
  if (report.checks.some(rootUnknown))
    return { title, state: 'unchecked', text: 'The text fits a signature of someone whom this page does not know.' };
  if (subject.kind === 'session')
    return { title, state: 'proven', text: 'The statement of a session, with the key that signs its answers.' };
  if (subject.kind !== 'attestation')
    return { title, state: 'open', text: 'Only a number: this file holds no question and no answer.' };
  return {
    title,
    state: 'proven',
    text: subject.asked ? 'Exactly your question and this answer.' : 'Exactly the question and the answer below.',
  };
}

function whichSoftware(view: View): Claim {
  const title = 'Which software';
  const { report } = view;
  const found = failed(view, title, OF_THE_SOFTWARE);
  if (found !== null) return found;
  const { cpu, simulated, release = null } = report.claims;
  const named = release === null || cpu?.software == null ? null : releaseText(release, cpu.software.launch);
  if (report.level === 'measured') {
    const { uncompared = null, weights = null, model = null, images } = cpu?.software ?? {};
    const imageNames = Object.keys(images ?? {}).join(', ');
    const names = imageNames === '' ? '' : ` ${weights === null ? 'Its writer' : 'It'} names ${imageNames}.`;
    const loads = model === null ? '' : ` Its engine loads the weights ${model.name}.`;
    const text = `${named ?? 'A guest and a launch file on a list of yours.'}${names}${loads}`;
    if (uncompared !== null) return { title, state: 'open', text: `${text} Left open: ${uncompared}.` };
    return { title, state: 'proven', text };
  }
  if (simulated && named !== null)
    return { title, state: 'open', text: `A simulator, which measures nothing, says: ${named}` };
  if (simulated) return { title, state: 'open', text: 'Not known: a simulator measures nothing.' };
  if (cpu !== null) return { title, state: 'open', text: 'Not known: what the guest runs was not compared.' };
  const firmware = report.checks.some(({ name, status }) => name === 'reference_values' && status === 'pass');
  return {
    title,
    state: 'open',
    text: `${firmware ? "The GPU's firmware is NVIDIA's. " : ''}What runs beside the GPU is not known.`,
  };
}

function releaseText(release: ReleaseClaims, launch: string): string {
  const shown = release.status?.state === 'fresh' ? '' : ' Nothing recent shows that it was not withdrawn.';
  return `${releaseSentence(release, launch)}.${shown}`;
}

function whenSigned({ report }: View, now: Date): Claim {
  const title = 'When';
  const { time } = report.claims;
  if (time === null) return { title, state: 'open', text: 'The file does not say.' };
  const clock = new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
  return {
    title,
    state: 'open',
    text: `${clock}, ${ageInWords(time, now)}, by the service's clock.`,
  };
}

// The ladder.

/** The steps, how many of them were reached, and what the next would add. null: of no use here. */
type Ladder = { readonly reached: number; readonly next: string } | null;

export const STEPS = ['Simulated', 'GPU', 'GPU + CPU', 'Measured'] as const;

const NEXT = [
  'Next: a GPU signs, and not a simulator.',
  'Next: a confidential guest’s key signs as well.',
  'Next: what started that guest is on the list of a release that you name.',
  'This is the highest step.',
] as const;

const REACHED: Readonly<Record<Exclude<Level, 'none'>, number>> = { gpu: 2, 'gpu+cpu': 3, measured: 4 };

function ladderOf({ report, verdict }: View): Ladder {
  if (verdict === 'invalid' || verdict === 'unchecked')
    return { reached: 0, next: 'No step counts until every check passes.' };
  if (report.level === 'none' && !report.claims.simulated) return null;
  const reached = report.level === 'none' ? 1 : REACHED[report.level];
  return { reached, next: NEXT[reached - 1] ?? '' };
}

/** `16 checks passed, 4 skipped` */
export function tally(checks: readonly Check[]): string {
  const count = (test: (check: Check) => boolean) => checks.filter(test).length;
  const others = [
    [count(isWrong), 'failed'],
    [count(isUnchecked), 'not possible here'],
    [count(({ status }) => status === 'skip'), 'skipped'],
  ] as const;
  const passed = `${count(({ status }) => status === 'pass')} checks passed`;
  return [passed, ...others.flatMap(([number, word]) => (number === 0 ? [] : [`${number} ${word}`]))].join(', ');
}

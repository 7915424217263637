// The audit in words for a terminal, and as JSON. Neither names a word of prompts and responses; passages are for the terminal alone.
import { plain } from '../../verify/cli/report.ts';
import type { Decision } from './rule.ts';
import type { Finding, Tally } from './score.ts';

/** What became of each file, by its name, and of what was left out. */
export interface Account {
  /** Answers whose tokens were scored, and those that have too much of another kind. */
  answers: number;
  readonly notAudited: { readonly file: string; readonly code: string; readonly incomplete: boolean }[];
  readonly findings: ({ readonly file: string } & Finding)[];
  readonly leftOut: Map<string, { answers: number; tokens: number }>;
}

export const newAccount = (): Account => ({ answers: 0, notAudited: [], findings: [], leftOut: new Map() });

export function leaveOut(account: Account, reason: string, tokens: number): void {
  const before = account.leftOut.get(reason) ?? { answers: 0, tokens: 0 };
  account.leftOut.set(reason, { answers: before.answers + 1, tokens: before.tokens + tokens });
}

export interface Circumstances {
  readonly model: string;
  readonly alpha: number;
  readonly bound: number;
  readonly calibrated: boolean;
}

const MAX_LISTED = 10;

export const inAnswers = (count: number): string => `${count} ${count === 1 ? 'answer' : 'answers'}`;

export function inWords(account: Account, { verdict, tests }: Decision, around: Circumstances): string {
  const { findings, notAudited, leftOut } = account;
  return [
    ...listed(notAudited.map(({ file, code }) => `not audited, the proof does not verify (${code}): ${file}`)),
    ...[...leftOut].map(
      ([reason, { answers, tokens }]) => `left out: ${inAnswers(answers)}, ${tokens} tokens: ${reason}`,
    ),
    ...listed(findings.map(findingWords)),
    ...tests.flatMap(({ words, power, alarm }) => [
      `${alarm ? 'ALARM' : 'no alarm'}: ${words}`,
      ...(power === null || alarm ? [] : [`  could have seen: ${power}`]),
    ]),
    '',
    ...(around.calibrated || tests.every(({ test }) => test !== 'greedy' && test !== 'text')
      ? []
      : ['not calibrated: the noise of an honest engine is what was measured on CPUs; --calibrate measures yours']),
    `${verdict}: ${verdictWords(account, verdict, around)}${unprovenWords(account)}`,
  ]
    .map(plain)
    .join('\n');
}

function verdictWords({ answers, findings }: Account, verdict: Decision['verdict'], around: Circumstances): string {
  const { model, alpha } = around;
  const rate = `at most ${alpha * 100} % false alarms${around.calibrated ? ', given the calibration' : ''}`;
  const these = inAnswers(answers);
  const [are, say] = answers === 1 ? ['is', 'says'] : ['are', 'say'];
  if (verdict === 'CONSISTENT')
    return `${these} ${are} what ${model}, its template and the signed settings give, as far as this many tokens can tell; it does not prove the model`;
  if (verdict === 'TOO LITTLE')
    return `${these} ${say} too little: 200 tokens of temperature 0, or 1,000 sampled ones, are the least`;
  const by = findings.length > 0 ? 'by their ids' : rate;
  return `${these} ${are} not what ${model}, its template and the signed settings give (${by})`;
}

/** Why the exit status is not that of the verdict. */
function unprovenWords({ notAudited }: Account): string {
  const unfinished = notAudited.filter(({ incomplete }) => incomplete).length;
  const refused = notAudited.length - unfinished;
  return [
    ...(refused === 0 ? [] : [`; ${refused} more ${refused === 1 ? 'has' : 'have'} no valid proof`]),
    ...(unfinished === 0 ? [] : [`; ${unfinished} more cannot be verified to the end`]),
  ].join('');
}

function findingWords({ file, ...finding }: Account['findings'][number]): string {
  if (finding.finding === 'prompt_differs')
    return `the model read another prompt than the signed request's in this engine's template: ${finding.signed} tokens in place of ${finding.expected}, from token ${finding.token} on: a hidden prompt or another template: ${file}`;
  return `the token ids of choice ${finding.choice} do not decode to its text: forged, or of another tokenizer: ${file}`;
}

const listed = (lines: readonly string[]): string[] =>
  lines.length <= MAX_LISTED ? [...lines] : [...lines.slice(0, MAX_LISTED), `… and ${lines.length - MAX_LISTED} more`];

export function asJson(account: Account, decision: Decision, around: Circumstances, { against }: Tally): string {
  const { answers, notAudited, findings, leftOut } = account;
  const report = {
    ...decision,
    ...around,
    ...(against === null ? {} : { log_likelihood_ratio: against.logRatio }),
    answers,
    not_audited: notAudited,
    findings,
    left_out: [...leftOut].map(([reason, counts]) => ({ reason, ...counts })),
  };
  return JSON.stringify(report, null, 2);
}

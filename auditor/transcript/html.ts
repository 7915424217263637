// The report as one HTML file without a script: the conversation, each turn with its verdict, its level and what was found. It is written as the
// turns come, so that it may be longer than memory.
import { closeSync, createReadStream, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { unusable } from '../../verify/cli/input.ts';
import { plural } from './findings.ts';
import type { Item } from './items.ts';
import { placeInWords, type Summary, verdictInWords } from './report.ts';
import type { Turn } from './turns.ts';

export interface HtmlReport {
  add(turn: Turn): void;
  end(summary: Summary, strict: boolean): Promise<void>;
  /** Where the report is not finished. */
  discard(): void;
}

/** Of one message; the transcript has the rest. */
const MAX_SHOWN = 20_000;
/** A longer one is folded. */
const MAX_OPEN = 1500;

/** @throws {UsageError} where the file cannot be written */
export function htmlReport(file: string): HtmlReport {
  const part = `${file}.part`;
  const write = (opened: number, text: string | Uint8Array) =>
    void writeSync(opened, typeof text === 'string' ? Buffer.from(text) : text);
  const open = (path: string): number => {
    try {
      return openSync(path, 'w', 0o600);
    } catch (error) {
      throw unusable(path, error);
    }
  };
  const turns = open(part);
  return {
    add: (turn) => write(turns, turnInHtml(turn)),
    async end(summary, strict) {
      closeSync(turns);
      const whole = `${file}.whole`;
      const out = open(whole);
      write(out, head(summary, strict));
      for await (const chunk of createReadStream(part) as AsyncIterable<Uint8Array>) write(out, chunk);
      write(out, '</main>\n</body>\n</html>\n');
      closeSync(out);
      renameSync(whole, file);
      rmSync(part);
    },
    discard() {
      closeSync(turns);
      rmSync(part, { force: true });
    },
  };
}

const ESCAPED: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
/** Characters that show nothing, or turn the direction of others. */
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

const escaped = (text: string): string =>
  text
    .replace(/[&<>"]/g, (found) => ESCAPED[found] ?? found)
    .replace(UNSEEN, (found) => `<i>U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}</i>`);

const TITLES: Readonly<Record<Item['kind'], string>> = {
  instructions: 'Instructions',
  user: 'Message',
  answer: 'Answer',
  call: 'Call',
  result: 'Result',
  aside: 'Reasoning or a tool of the service',
  reference: 'Kept by the service',
};

function itemInHtml({ kind, name, id, text, length }: Item): string {
  const own = kind === 'call' || (kind === 'user' && name !== 'user') ? ` <b>${escaped(name)}</b>` : '';
  const title = `${TITLES[kind]}${own}${id === null || id === '' ? '' : ` <code>${escaped(id)}</code>`}`;
  const words = text.startsWith('\0') ? text.slice(1) : text;
  const rest =
    words.length > MAX_SHOWN
      ? `<p class="rest">${words.length - MAX_SHOWN} characters more are in the transcript.</p>`
      : '';
  const body = text === '' && length === 0 ? '' : `<pre dir="auto">${escaped(words.slice(0, MAX_SHOWN))}</pre>${rest}`;
  const folded =
    words.length > MAX_OPEN
      ? `<details><summary>${plural(words.length, 'character')}</summary>${body}</details>`
      : body;
  return `<section class="item ${kind}"><h3>${title}</h3>${folded}</section>\n`;
}

function turnInHtml(turn: Turn): string {
  const { number, verdict, level, model, time, endpoint, findings, fresh, said } = turn;
  const badge = `<span class="badge ${verdict}">${verdict}</span> <span class="badge level">level ${level}</span>`;
  const place = placeInWords(turn).replace(/turn (\d+)/, '<a href="#t$1">turn $1</a>');
  const facts = [place, endpoint, model, time].flatMap((one, i) => (one === null ? [] : i === 0 ? one : escaped(one)));
  const found = findings.map(
    ({ code, severity, text }) =>
      `<li class="${severity}"><b>${severity}</b> <code>${code}</code> ${escaped(text)}</li>`,
  );
  const choices = said.map((items, i) => {
    const choice = said.length > 1 ? `<h3>Choice ${i + 1}</h3>` : '';
    return `<div class="said">${choice}${items.map(itemInHtml).join('')}</div>`;
  });
  return `<article id="t${number}">
<header><h2>Turn ${number}</h2> ${badge}<p>${facts.join(' · ')}</p></header>
${found.length === 0 ? '' : `<ul class="found">${found.join('')}</ul>`}
<div class="told">${fresh.map(itemInHtml).join('')}</div>
${choices.join('\n')}
</article>
`;
}

function head(summary: Summary, strict: boolean): string {
  const { verdict, turns, runs, valid, models, proven, not_proven } = summary;
  const list = (items: readonly string[]) => `<ul>${items.map((text) => `<li>${escaped(text)}</li>`).join('')}</ul>`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>Transcript: ${verdict}</title>
<style>${STYLE}</style>
</head>
<body>
<header class="top">
<h1>Transcript of a run</h1>
<p class="verdict ${verdict}">${escaped(verdictInWords(summary, strict))}</p>
<p>${plural(turns, 'turn')} in ${plural(runs, 'run')}, ${valid} valid${models.length === 0 ? '' : `; by ${models.map(escaped).join(', ')}`}. This page says what was found when it was made: <code>countersign transcript</code> checks the transcript itself.</p>
<h2>Proven</h2>
${proven.length === 0 ? '<p>Nothing.</p>' : list(proven)}
<h2>Not proven</h2>
${list(not_proven)}
</header>
<main>
`;
}

const STYLE = `
:root { color-scheme: light dark; --back: #fff; --text: #1a1d21; --soft: #565d66; --line: #d5d9de; --card: #f5f6f8; --said: #eaf2fd;
  --good: #17653a; --bad: #a3191f; --open: #7a4f00; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #e7e9ec; --soft: #a3abb5; --line: #363c43; --card: #1d2125; --said: #17263a;
  --good: #7bd39f; --bad: #ff9a94; --open: #f0c063; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 54rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 1rem 0 .25rem; } h3 { font-size: .85rem; margin: 0; color: var(--soft); }
h3 b, h3 code { color: var(--text); }
a { color: inherit; } code, pre { font-family: ui-monospace, monospace; font-size: .85rem; } i { color: var(--bad); font-style: normal; font-size: .75em; }
p { margin: .25rem 0; } ul { margin: .25rem 0; padding-left: 1.25rem; }
.verdict { padding: .75rem 1rem; border: 2px solid; border-radius: .5rem; font-weight: 600; }
.UNBROKEN, .VALID { color: var(--good); } .BROKEN, .INVALID { color: var(--bad); } .INCOMPLETE { color: var(--open); }
article { margin-top: 1.5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
article > header h2 { display: inline; margin: 0 .5rem 0 0; } article > header p { color: var(--soft); font-size: .85rem; }
.badge { display: inline-block; padding: 0 .5rem; border: 1px solid currentcolor; border-radius: 1rem; font-size: .8rem; font-weight: 600; }
.level { color: var(--soft); }
.found { list-style: none; padding: 0; font-size: .9rem; } .found li { margin: .25rem 0; padding: .25rem .75rem; border-left: 4px solid var(--line); }
.found .broken { border-color: var(--bad); } .found .incomplete, .found .edit { border-color: var(--open); }
.broken b { color: var(--bad); } .incomplete b, .edit b { color: var(--open); }
.item { margin: .5rem 0; padding: .5rem .75rem; background: var(--card); border-radius: .5rem; }
.said .item { background: var(--said); margin-left: 1.5rem; } .told .item { margin-right: 1.5rem; }
.item pre { margin: .25rem 0 0; white-space: pre-wrap; unicode-bidi: isolate; } .rest, summary { color: var(--soft); font-size: .85rem; }
summary { cursor: pointer; }
`;

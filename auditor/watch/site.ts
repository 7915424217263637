// The static site: index.html without a script, feed.xml, badge.svg and status.json. It asks nobody but its own server.
import type { Board, Kept, Standing } from './board.ts';
import type { Head } from './history.ts';
import { changeInWords, headlineOf, labelOf, sentenceOf, timeInWords } from './words.ts';

export interface Fleet {
  readonly watch: string;
  /** The names of the nodes, in the order of nodes.json. */
  readonly names: readonly string[];
  readonly board: Board;
  readonly head: Head;
  readonly oldest: number;
  /** Files of the history, oldest first. */
  readonly files: readonly string[];
  readonly at: Date;
  /** When the next round has ended at the latest; null after `--once`. */
  readonly due: Date | null;
  /** Whether a proof's file is still there. */
  readonly has: (path: string) => boolean;
}

type Shown = Standing & { readonly last: Kept };

/** By name, each file's content. */
export function siteOf(fleet: Fleet): Readonly<Record<string, string>> {
  const shown = fleet.names.flatMap((name) => {
    const standing = fleet.board.standings.get(name);
    return standing?.last == null ? [] : [standing as Shown];
  });
  return {
    'index.html': page(fleet, shown),
    'feed.xml': feed(fleet),
    'badge.svg': badge(shown),
    'status.json': status(fleet, shown),
  };
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => ESCAPES[one] ?? one);

/** What needs somebody comes first. */
const rankOf = ({ last: { state, warnings } }: Shown): number =>
  state === 'failed'
    ? 0
    : state === 'good' && warnings.length > 0
      ? 1
      : state === 'good'
        ? 4
        : state === 'away'
          ? 2
          : 3;

const lookOf = ({ state, warnings }: Kept): string => (state === 'good' && warnings.length > 0 ? 'warned' : state);
const label = (entry: Kept): string => `${labelOf(entry)}${lookOf(entry) === 'warned' ? ', with a warning' : ''}`;
const SIGNS: Readonly<Record<string, string>> = { good: '✓', failed: '✕', warned: '!', away: '–', unchecked: '?' };

const timeTag = (time: string): string => `<time datetime="${escaped(time)}">${escaped(timeInWords(time))}</time>`;

function page(fleet: Fleet, shown: readonly Shown[]): string {
  const { watch, at, due } = fleet;
  const entries = shown.map(({ last }) => last);
  const looks = entries.map(lookOf);
  const look = looks.includes('failed') ? 'failed' : looks.every((one) => one === 'good') ? 'good' : 'warned';
  const { long, but } = headlineOf(entries);
  const next =
    due === null
      ? ''
      : ` The next check ends by ${timeTag(due.toISOString())}: later than that, this watch has stopped.`;
  const sorted = [...shown].sort((a, b) => rankOf(a) - rankOf(b));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>${escaped(long)} – ${escaped(watch)}</title>
<link rel="alternate" type="application/atom+xml" title="What changed" href="feed.xml">
<link rel="icon" href="data:,">
<style>${STYLE}</style>
</head>
<body>
<header class="${look}">
<p class="watch">${escaped(watch)}</p>
<h1><span aria-hidden="true">${SIGNS[look]}</span> ${escaped(long)}</h1>
<p>Checked ${timeTag(at.toISOString())}.${next}</p>
${but === null ? '' : `<p class="but">${but}</p>\n`}</header>
<main>
<h2 class="hidden">Nodes</h2>
<ul class="nodes">
${sorted.map((one) => card(one, fleet)).join('\n')}
</ul>
${about(fleet)}
</main>
</body>
</html>
`;
}

function card({ last, proven, since, recent }: Shown, fleet: Fleet): string {
  const look = lookOf(last);
  const facts = [
    ['Level reached', last.level ?? 'not known'],
    ['Level demanded', last.demanded],
    ['Last proof', proven === null ? 'never' : timeInWords(proven.time)],
    ['In this state since', since === null ? '' : timeInWords(since.time)],
    ['Time for a proof', proven?.latency_ms == null ? '' : `${(proven.latency_ms / 1000).toFixed(2)} s`],
    ['Asked', last.outcome !== 'proven' ? '' : last.sealed ? 'with a sealed prompt' : 'with an ordinary prompt'],
    ['Driver', last.drivers.join(', ')],
    ['Launch', last.launch === null ? '' : `${last.launch.slice(0, 16)}…`],
    ['Release', last.release?.tag ?? ''],
    ['Weights', last.weights?.name ?? ''],
    ['Devices', last.devices === null ? '' : String(last.devices.length)],
    ['Certificates end', dayOf(last.ends?.certificates)],
    ['Collateral ends', dayOf(last.ends?.collateral)],
    ['Canary, by its word', last.outcome === 'proven' ? last.canary : ''],
  ].filter(([, value]) => value !== '');
  return `<li class="node ${look}">
<div class="top"><h3>${escaped(last.node)}</h3> <p class="state"><span aria-hidden="true">${SIGNS[look]}</span> ${label(last)}</p></div>
<p class="sentence">${escaped(sentenceOf(last))}</p>
${strip(recent)}
<details><summary>Facts, proofs and history<span class="hidden"> of ${escaped(last.node)}</span></summary>
<dl>${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${escaped(value ?? '')}</dd></div>`).join('')}</dl>
<ol class="entries" reversed>
${[...recent]
  .reverse()
  .slice(0, 12)
  .map((entry) => row(entry, fleet))
  .join('\n')}
</ol>
</details>
</li>`;
}

/** RFC 5280 §4.1.2.5: a certificate without an end. */
const dayOf = (time: string | null | undefined): string =>
  time == null ? '' : time.startsWith('9999') ? 'never' : time.slice(0, 10);

/** The last rounds as a row of marks. */
function strip(recent: readonly Kept[]): string {
  const good = recent.filter(({ state }) => state === 'good').length;
  const marks = recent.map(
    (entry, i) => `<rect class="${lookOf(entry)}" x="${i * 8}" width="6" height="18" rx="1.5"/>`,
  );
  return `<svg class="strip" viewBox="0 0 ${48 * 8 - 2} 18" role="img" aria-label="Proven in ${good} of the last ${recent.length} rounds">${marks.join('')}</svg>`;
}

function row(entry: Kept, { has }: Fleet): string {
  const links = entry.proofs.map((path) => {
    const name = path.slice(0, path.indexOf('/') - 1);
    return has(path) ? `<a href="${path}">${name}</a>` : `${name} (no longer kept)`;
  });
  const files = links.length === 0 ? '' : `<span class="files">${links.join(', ')}</span>`;
  return `<li value="${entry.entry}">${timeTag(entry.time)} <b>${label(entry)}</b>${entry.state === 'good' ? '' : ` ${escaped(entry.reason ?? '')}`} ${files}</li>`;
}

function about({ head, oldest, files }: Fleet): string {
  const list = files.map((name) => `<a href="history/${name}">${name}</a>`).join(', ');
  return `<section>
<h2>Check it yourself</h2>
<p>Every few minutes this watch asks each node a question, as any client does, and keeps the answer with its proof. Who trusts this page trusts its owner. A proof needs no trust: fetch an answer and its bundle, and</p>
<pre><code>npx @countersign/verify answer.json --bundle bundle.json</code></pre>
<p>says what it shows. A node that is away is no failure until it was so for some rounds. The history is a chain, in which each entry holds the hash of the one before: ${list}. It goes from entry ${oldest} to entry ${head.entry}, whose SHA-256 is <code class="hash">${head.sha256}</code>: note it, and later nobody can change what stands before it without your seeing.</p>
<p><a href="feed.xml">Feed of changes</a> · <a href="status.json">JSON</a> · <a href="badge.svg">badge</a> · <a href="metrics.prom">metrics</a></p>
</section>`;
}

function feed({ watch, board, at }: Fleet): string {
  const id = `urn:countersign:watch:${encodeURIComponent(watch)}`;
  const entries = [...board.changes].reverse().map((change) => {
    const { entry, time, node } = change.entry;
    return `<entry><id>${id}:${entry}</id><title>${escaped(`${node}: ${labelOf(change.entry)}`)}</title><updated>${escaped(time)}</updated><link href="index.html"/><summary>${escaped(changeInWords(change))}</summary></entry>`;
  });
  return `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
<id>${id}</id><title>${escaped(watch)}</title><updated>${at.toISOString()}</updated><author><name>countersign watch</name></author>
${entries.join('\n')}
</feed>
`;
}

/** A character's width at 11 px, about. */
const CHARACTER_PX = 6.6;

function badge(shown: readonly Shown[]): string {
  const entries = shown.map(({ last }) => last);
  const text = headlineOf(entries).short;
  const [left, right] = ['countersign', text].map((one) => Math.ceil(one.length * CHARACTER_PX) + 12) as [
    number,
    number,
  ];
  const failed = entries.some(({ state }) => state === 'failed');
  const colour = failed ? '#b0221a' : entries.every(({ state }) => state === 'good') ? '#17663a' : '#6f4800';
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${left + right}" height="20" role="img" aria-label="countersign: ${text}"><title>countersign: ${text}</title><rect width="${left}" height="20" fill="#3a3731"/><rect x="${left}" width="${right}" height="20" fill="${colour}"/><g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"><text x="${left / 2}" y="14">countersign</text><text x="${left + right / 2}" y="14">${text}</text></g></svg>
`;
}

function status({ watch, at, due, head, oldest }: Fleet, shown: readonly Shown[]): string {
  const nodes = shown.map(({ last, proven, since }) => ({
    ...last,
    sentence: sentenceOf(last),
    since: since?.time ?? null,
    last_proof: proven?.time ?? null,
  }));
  const value = { watch, headline: headlineOf(shown.map(({ last }) => last)).long, at, due, head, oldest, nodes };
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** The colours of the gateway's own page, in both schemes. */
const STYLE = `
:root{color-scheme:light dark;--paper:#fbfaf6;--raised:#fff;--ink:#1d1b18;--soft:#5c574e;--line:#ddd7cb;--accent:#0b5d57;--good:#17663a;--good-paper:#edf7ef;--failed:#b0221a;--failed-paper:#fdf0ee;--warned:#6f4800;--warned-paper:#fff4d6}
@media (prefers-color-scheme:dark){:root{--paper:#161513;--raised:#1e1d1a;--ink:#ebe7df;--soft:#aaa498;--line:#3a3731;--accent:#76cfc5;--good:#83d6a0;--good-paper:#1b2b20;--failed:#ff9c91;--failed-paper:#33191a;--warned:#f7cd68;--warned-paper:#2f2713}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}
header,main{max-width:76rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
.watch{margin:0;color:var(--soft)}
h1{margin:.25rem 0;font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.2}
h2{font-size:1.25rem;margin:2rem 0 .5rem}
.good h1,.good .state{color:var(--good)}
.failed h1,.failed .state{color:var(--failed)}
.warned h1,.warned .state{color:var(--warned)}
.but{padding:.5rem .75rem;background:var(--warned-paper);color:var(--warned)}
.nodes{list-style:none;padding:0;margin:1.5rem 0;display:grid;gap:.75rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,34rem),1fr));align-items:start}
.node{background:var(--raised);border:1px solid var(--line);border-left:.4rem solid var(--soft);border-radius:.4rem;padding:.75rem 1rem}
.node.good{border-left-color:var(--good)}
.node.failed{border-left-color:var(--failed);background:var(--failed-paper)}
.node.warned{border-left-color:var(--warned);background:var(--warned-paper)}
.top{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1rem;align-items:baseline}
h3{margin:0;font-size:1.1rem;overflow-wrap:anywhere}
.state{margin:0;font-weight:600}
.sentence{margin:.25rem 0 .5rem}
.strip{display:block;width:100%;max-width:24rem;height:auto;color:var(--soft)}
.strip rect{fill:var(--soft)}
.strip .good{fill:var(--good)}.strip .failed{fill:var(--failed)}.strip .warned{fill:var(--warned)}
summary{cursor:pointer;color:var(--accent);padding:.4rem 0;margin-top:.25rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(12rem,1fr));gap:.5rem 1rem;margin:.25rem 0}
dt{color:var(--soft);font-size:.875rem}
dd{margin:0;overflow-wrap:anywhere}
.entries{padding-left:3rem;font-size:.9375rem}
.entries li{padding:.15rem 0}
.files{color:var(--soft)}
a{color:var(--accent)}
pre{padding:.75rem;background:var(--raised);border:1px solid var(--line);white-space:pre-wrap;overflow-wrap:anywhere}
.hash{overflow-wrap:anywhere}
section{max-width:48rem;padding-bottom:2rem}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
`;

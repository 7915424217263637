// The audit as a picture (SVG): the gaps of greedy tokens beside the baseline, the standardised surprise of sampled ones within its limits.
// It holds numbers alone, and nothing of prompts and responses.
import type { Calibration } from './calibration.ts';
import { GAPS, type Greedy, MISS, type Tally } from './score.ts';
import { normalQuantile } from './statistics.ts';

const WIDTH = 420;
const HEIGHT = 300;
const LEFT = 56;
const TOP = 40;
const RIGHT = 16;
const BOTTOM = 44;
/** The least share that is drawn. */
const LEAST = 1e-5;
const MAX_GAP = 1.5;

type Point = readonly [x: number, y: number];

/** @param bound of an honest engine's share of misses */
export function chartOf(tally: Tally, calibration: Calibration | null, bound: number, alpha: number): string {
  const panels = [
    ...(tally.greedy.tokens > 0 ? [gapPanel('Temperature 0', tally.greedy, calibration, bound)] : []),
    ...(tally.text.tokens > 0 ? [gapPanel('Temperature 0, text alone', tally.text, calibration, bound)] : []),
    ...(tally.sampled.tokens > 0 ? [surprisePanel(tally, alpha)] : []),
  ];
  const width = Math.max(1, panels.length) * WIDTH;
  const placed = panels.map((panel, i) => `<g transform="translate(${i * WIDTH} 0)">${panel}</g>`).join('\n');
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}" font-family="sans-serif" font-size="12" role="img" aria-label="Audit of weights">
<rect width="100%" height="100%" fill="#fff"/>
${placed}
</svg>
`;
}

function gapPanel(title: string, part: Greedy, calibration: Calibration | null, bound: number): string {
  const x = scale(0, MAX_GAP, LEFT, WIDTH - RIGHT);
  const y = scale(Math.log10(LEAST), 0, HEIGHT - BOTTOM, TOP);
  const points = ({ tokens, above }: Pick<Greedy, 'tokens'> & { readonly above: readonly number[] }): Point[] =>
    GAPS.filter((gap) => gap <= MAX_GAP).map((gap, i) => [
      x(gap),
      y(Math.log10(Math.max(LEAST, (above[i] ?? 0) / tokens))),
    ]);
  return [
    heading(`${title}: ${part.tokens} tokens`),
    ...[1, 0.1, 0.01, 0.001, 1e-4, LEAST].map((share) => across(y(Math.log10(share)), label(share))),
    ...[0, 0.5, 1, 1.5].map((gap) => text(x(gap), HEIGHT - BOTTOM + 16, String(gap), 'middle')),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, 'share of tokens with a gap above this (nats)', 'middle'),
    ...(calibration === null ? [] : [line(points(calibration), '#6b7280', '4 3')]),
    line(points(part), '#b91c1c'),
    `<circle cx="${x(MISS)}" cy="${round(y(Math.log10(bound)))}" r="4" fill="#111"/>`,
    text(x(MISS) + 8, y(Math.log10(bound)) - 6, 'most of an honest engine', 'start'),
    ...legend(calibration === null ? ['audited'] : ['audited', 'reference']),
  ].join('\n');
}

function surprisePanel({ sampled }: Tally, alpha: number): string {
  const limit = normalQuantile(alpha / 4);
  const most = Math.max(limit + 1, ...sampled.path.map(({ z }) => Math.abs(z)));
  const x = scale(0, Math.max(1, sampled.tokens), LEFT, WIDTH - RIGHT);
  const y = scale(-most, most, HEIGHT - BOTTOM, TOP);
  const points = sampled.path.map(({ tokens, z }): Point => [x(tokens), y(z)]);
  return [
    heading(`Sampled: ${sampled.tokens} tokens`),
    `<rect x="${LEFT}" y="${round(y(limit))}" width="${WIDTH - RIGHT - LEFT}" height="${round(y(-limit) - y(limit))}" fill="#e5e7eb"/>`,
    ...[-limit, 0, limit].map((z) => across(y(z), z.toFixed(1))),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, 'standardised surprise, token by token', 'middle'),
    line([[x(0), y(0)], ...points], '#b91c1c'),
  ].join('\n');
}

const scale =
  (from: number, to: number, low: number, high: number) =>
  (value: number): number =>
    low + ((Math.min(to, Math.max(from, value)) - from) / (to - from)) * (high - low);
const round = (value: number): number => Math.round(value * 10) / 10;
const label = (share: number): string => (share >= 0.001 ? `${share * 100} %` : `${(share * 100).toPrecision(1)} %`);
const heading = (words: string): string => text(LEFT, 20, words, 'start', ' font-weight="bold"');
const text = (x: number, y: number, words: string, anchor: string, more = ''): string =>
  `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" fill="#111"${more}>${words}</text>`;
const across = (y: number, words: string): string =>
  `<path d="M${LEFT} ${round(y)}H${WIDTH - RIGHT}" stroke="#d1d5db"/>${text(LEFT - 6, y + 4, words, 'end')}`;
const line = (points: readonly Point[], stroke: string, dashes = ''): string =>
  `<polyline points="${points.map(([x, y]) => `${round(x)},${round(y)}`).join(' ')}" fill="none" stroke="${stroke}" stroke-width="2"${dashes === '' ? '' : ` stroke-dasharray="${dashes}"`}/>`;
const legend = (names: readonly string[]): string[] =>
  names.map((name, i) => {
    const y = TOP + 70 + i * 18;
    const at: Point[] = [
      [WIDTH - 120, y - 4],
      [WIDTH - 96, y - 4],
    ];
    return line(at, i === 0 ? '#b91c1c' : '#6b7280', i === 0 ? '' : '4 3') + text(WIDTH - 90, y, name, 'start');
  });

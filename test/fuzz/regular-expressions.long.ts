// Every regular expression that meets what a client, a backend or an attestation wrote takes time in proportion to it.
import { globSync, readFileSync } from 'node:fs';
import { checkSync } from 'recheck';
import { parseAst } from 'rolldown/parseAst';
import { describe, expect, it } from 'vitest';

const ROOMS = ['gateway', 'node', 'proto', 'sealed', 'verify'];
const CHECK_TIMEOUT_MS = 3_000;

/** Quadratic, and never near a stranger's text. */
const OWN_TEXT = new Map([['\\/+$', "an operator's own URL, read once at the start"]]);

/** What the checker cannot decide, or does not see: measured instead, on the text that would cost most. */
const MEASURED: readonly [name: string, expression: RegExp, text: (n: number) => string][] = [
  ['PEM, begun and never ended', pemIn(), (n) => '-----BEGIN CERTIFICATE-----'.repeat(n / 27)],
  ['PEM, one long block that breaks', pemIn(), (n) => `-----BEGIN CERTIFICATE-----${'A'.repeat(n)}`],
  ['PEM, blocks in a block', pemIn(), (n) => '-----BEGIN CERTIFICATE-----AAAA\n'.repeat(n / 32)],
  ['authorization', /^Bearer +(\S+)$/i, (n) => `Bearer ${' '.repeat(n)}\t`],
  ['the end of an event', /(\n\n|\r\r|\r\n\r\n)$/, (n) => '\r\n\n'.repeat(n / 3)],
];

/** As verify/x509/certificate.ts has it: found there by `expressions`, so that it is the same. */
function pemIn(): RegExp {
  const one = expressions().find(
    ({ file, source }) => file.endsWith('x509/certificate.ts') && source.includes('BEGIN'),
  );
  if (one === undefined) throw new Error('the expression for PEM is gone: take it out of here too');
  return new RegExp(one.source, one.flags);
}

interface Expression {
  readonly file: string;
  readonly source: string;
  readonly flags: string;
}

interface Node {
  readonly type?: string;
  readonly regex?: { readonly pattern: string; readonly flags: string };
  readonly callee?: { readonly name?: string };
}

/** Literals, and the places where one is put together at run time. */
function expressions(): (Expression & { readonly made: boolean })[] {
  const found: (Expression & { made: boolean })[] = [];
  for (const file of globSync(`{${ROOMS.join(',')}}/**/*.ts`)) {
    const walk = (node: unknown): void => {
      if (Array.isArray(node)) return node.forEach(walk);
      if (typeof node !== 'object' || node === null) return;
      const { type, regex, callee } = node as Node;
      if (type === 'Literal' && regex !== undefined)
        found.push({ file, source: regex.pattern, flags: regex.flags, made: false });
      if (type === 'NewExpression' && callee?.name === 'RegExp')
        found.push({ file, source: '', flags: '', made: true });
      Object.values(node).forEach(walk);
    };
    walk(parseAst(readFileSync(file, 'utf8'), { lang: 'ts' } as never, file));
  }
  return found;
}

/** Milliseconds of one search, the best of several. */
function cost_ms(expression: RegExp, text: string): number {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 7; i++) {
    const began = performance.now();
    expression.lastIndex = 0;
    for (const _ of text.matchAll(new RegExp(expression, expression.flags.replace(/g?$/, 'g')))) void _;
    best = Math.min(best, performance.now() - began);
  }
  return best;
}

describe('regular expressions', () => {
  const all = expressions();
  const literals = [
    ...new Map(all.filter(({ made }) => !made).map((one) => [`/${one.source}/${one.flags}`, one])).values(),
  ];

  it('are linear, as recheck decides; what it cannot decide is measured below', { timeout: 240_000 }, () => {
    const verdicts = literals.map((one) => {
      const { status } = checkSync(one.source, one.flags, { timeout: CHECK_TIMEOUT_MS } as never);
      return { ...one, status };
    });
    const safe = verdicts.filter(({ status }) => status === 'safe');
    console.log(
      [
        `${literals.length} regular expressions of ${ROOMS.join(', ')}, ${safe.length} linear:`,
        ...verdicts.map(({ file, source, flags, status }) => `  ${status.padEnd(10)} ${file}  /${source}/${flags}`),
      ].join('\n'),
    );
    const measured = new Set(MEASURED.map(([, { source }]) => source));
    const left = verdicts.filter(
      ({ status, source }) => status !== 'safe' && !OWN_TEXT.has(source) && !measured.has(source),
    );
    expect(left).toEqual([]);
    expect(literals.length).toBeGreaterThan(50);
  });

  it('are put together at run time only where it is known, from constants', () => {
    const made = [...new Set(all.filter((one) => one.made).map(({ file }) => file))].sort();
    expect(made).toEqual(['verify/gpu/collateral.ts', 'verify/gpu/rim/xml.ts']);
  });

  it.each(MEASURED)('take twice as long for twice the text, no more: %s', (_name, expression, text) => {
    const n = 200_000;
    const small = cost_ms(expression, text(n));
    const large = cost_ms(expression, text(4 * n));
    // Four times the text: linear is 4, quadratic 16. Below a millisecond the clock says little.
    expect(large).toBeLessThan(Math.max(1, small) * 9);
    expect(large).toBeLessThan(500);
  });
});

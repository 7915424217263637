// The table, vector by vector: expected verdict, ours, and that of NVIDIA's unmodified Python verifier where it can run.
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { vectorsPresent } from '../support/vectors.ts';
import { evidenceCases } from './cases.ts';
import { opaqueRow, rimRows, rootRows, tokenRows } from './documents.ts';
import { evidenceRow, type Row, servicesFor } from './rows.ts';
import type { Services } from './services.ts';
import { RELAXED, type Tools } from './verifier.ts';

const provided = inject('nvidiaTools');
const missing = 'missing' in provided ? `, SKIPPED without ${provided.missing}` : '';
const tools = provided as Tools;
/** What NVIDIA's verifier accepts and should not: OCSP responses outside of their window. */
const ACCEPTED_BY_NVIDIA = 'h100-550.90.07, one clock for all';
const cases = missing === '' && vectorsPresent ? evidenceCases() : [];

describe.skipIf(missing !== '')(`beside NVIDIA's verifier${missing}`, () => {
  const rows: Row[] = [];
  let services: Services;
  beforeAll(async () => {
    const [first] = cases;
    if (first === undefined) throw new Error('no evidence');
    services = await servicesFor(first);
  });
  afterAll(async () => {
    await services?.close();
    print(rows);
  });

  test.each(cases)('$name: $expected', async (one) => {
    const row = await evidenceRow(one, tools);
    rows.push(row);
    expect(row.ours).toBe(one.expected);
    const agrees = one.expected === 'pass' || one.name === ACCEPTED_BY_NVIDIA ? /^(pass|-)/ : /^(fail|-)/;
    expect(row.nvidia).toMatch(agrees);
  });

  test('RIMs that must be refused are refused by both', async () => {
    const found = await rimRows(tools, services);
    rows.push(...found);
    for (const { vector, ours, nvidia } of found) {
      expect(ours, vector).toMatch(/^refused/);
      expect(nvidia, vector).toMatch(/^refused/);
    }
  });

  test('the new opaque data, the tokens and the roots', async () => {
    const found = [await opaqueRow(tools, services), ...(await tokenRows(tools, services)), ...rootRows(tools)];
    rows.push(...found);
    for (const { vector, expected, ours } of found) expect(ours, vector).toContain(expected);
  });
});

function print(rows: readonly Row[]): void {
  const header: Row = {
    vector: 'vector',
    expected: 'expected',
    ours: 'ours',
    nvidia: "NVIDIA's Python verifier 2.7.3",
  };
  const all = [header, ...rows];
  const width = (member: keyof Row) => Math.max(...all.map((row) => row[member].slice(0, 60).length));
  const [vector, expected, own] = (['vector', 'expected', 'ours'] as const).map(width);
  const lines = all.map((row) =>
    [
      row.vector.padEnd(vector ?? 0),
      row.expected.padEnd(expected ?? 0),
      row.ours.slice(0, 60).padEnd(own ?? 0),
      row.nvidia,
    ]
      .join('  ')
      .slice(0, 240),
  );
  const notes = [
    ...RELAXED,
    '[stand-in OCSP]: no response about this device or its RIM signers is at hand; genuine ones about other certificates were served, and it took them: it compares no certID',
  ];
  console.log([...lines, '', "Set aside for NVIDIA's verifier:", ...notes.map((note) => `- ${note}`)].join('\n'));
}

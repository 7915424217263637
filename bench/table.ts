// Prints results for people: one block a figure, one line a subject, ratios to nginx and to the bare pipe beside the values.
import type { Column } from './figures/figure.ts';
import type { Row } from './results.ts';

const NAME_WIDTH = 28;

export function table(title: string, columns: readonly Column[], rows: readonly Row[]): string {
  const heads = columns.flatMap((column) => (column.ratio ? [column.title, '×nginx', '×pipe'] : [column.title]));
  const lines = rows.map((row) => ({
    name: row.name,
    wrong: row.wrong,
    cells: columns.flatMap((column) => cellTexts(column, row)),
  }));
  const widths = heads.map((head, i) => Math.max(head.length, ...lines.map(({ cells }) => cells[i]?.length ?? 0)));
  const line = (name: string, cells: readonly string[]) =>
    `  ${name.padEnd(NAME_WIDTH)}${cells.map((cell, i) => cell.padStart((widths[i] ?? 0) + 2)).join('')}`;
  return [
    '',
    title,
    line('', heads),
    ...lines.map(({ name, cells, wrong }) =>
      wrong === null ? line(name, cells) : `${line(name, cells)}   DOES NOT COUNT: ${wrong}`,
    ),
  ].join('\n');
}

function cellTexts({ key, digits, ratio = false }: Column, { cells }: Row): string[] {
  const cell = cells[key];
  const value = number(cell?.value, digits);
  return ratio ? [value, number(cell?.to_nginx, 2), number(cell?.to_pipe, 2)] : [value];
}

function number(value: number | undefined, digits: number): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  return value
    .toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
    .replaceAll(',', ' ');
}

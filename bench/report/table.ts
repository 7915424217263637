// From medians to a grid of texts: one line a subject, ratios to nginx and to the bare pipe beside the values.
import type { Column } from '../figures/figure.ts';
import { number } from './number.ts';
import type { Row } from './results.ts';

export interface Grid {
  readonly title: string;
  readonly heads: readonly string[];
  readonly lines: readonly { readonly name: string; readonly cells: readonly string[]; readonly note?: string }[];
}

export function grid(title: string, columns: readonly Column[], rows: readonly Row[]): Grid {
  return {
    title,
    heads: columns.flatMap((column) => (column.ratio ? [column.title, '×nginx', '×pipe'] : [column.title])),
    lines: rows.map((row) => ({
      name: row.name,
      cells: columns.flatMap((column) => cellTexts(column, row)),
      ...(row.wrong === null ? {} : { note: `DOES NOT COUNT: ${row.wrong}` }),
    })),
  };
}

/** For a terminal: every column as wide as it must be, values to the right. */
export function aligned({ title, heads, lines }: Grid): string {
  const name_width = Math.max(...lines.map(({ name }) => name.length));
  const widths = heads.map((head, i) => Math.max(head.length, ...lines.map(({ cells }) => cells[i]?.length ?? 0)));
  const line = (name: string, cells: readonly string[]) =>
    `  ${name.padEnd(name_width)}${cells.map((cell, i) => cell.padStart((widths[i] ?? 0) + 2)).join('')}`;
  const texts = lines.map(({ name, cells, note }) => line(name, cells) + (note === undefined ? '' : `   ${note}`));
  return ['', title, line('', heads), ...texts].join('\n');
}

function cellTexts({ key, digits, ratio = false }: Column, { cells }: Row): string[] {
  const cell = cells[key];
  const value = number(cell?.value, digits);
  return ratio ? [value, number(cell?.to_nginx, 2), number(cell?.to_pipe, 2)] : [value];
}

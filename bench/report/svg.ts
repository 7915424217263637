// A panel of horizontal bars as SVG: light and dark by the reader's own setting, no script, no font of its own.
import { number } from './number.ts';

export interface BarRow {
  readonly label: string;
  readonly value: number;
  /** Drawn in the accent colour. */
  readonly own: boolean;
}

export interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly digits: number;
  readonly rows: readonly BarRow[];
  /** Where a bar is cut; its number still stands beside it. */
  readonly limit: number;
}

const COLUMNS = 2;
const PANEL = { width: 420, title: 34, row: 24, gap: 28, label: 112, number: 92 };
const BAR_HEIGHT = 14;

const STYLE = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 14px } .note { font-size: 11px; fill: #57606a } .value { font-variant-numeric: tabular-nums }
  .bar { fill: #afb8c1 } .own { fill: #1a7f5a } .cut { stroke: #ffffff; stroke-width: 3 } .ground { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #8d96a0 } .bar { fill: #6e7681 } .own { fill: #3fb98a } .cut { stroke: #0d1117 }
    .ground { fill: #0d1117 }
  }`;

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const round = (value: number): number => Math.round(value * 10) / 10;

export function panels(all: readonly Panel[], notes: readonly string[]): string {
  const rows = Math.max(...all.map(({ rows }) => rows.length));
  const panel_height = PANEL.title + rows * PANEL.row + PANEL.gap;
  const width = COLUMNS * PANEL.width + 3 * 16;
  const grid_height = Math.ceil(all.length / COLUMNS) * panel_height;
  const height = grid_height + notes.length * 16 + 20;
  const drawn = all.map((panel, i) => {
    const [x, y] = [16 + (i % COLUMNS) * (PANEL.width + 16), 12 + Math.floor(i / COLUMNS) * panel_height];
    return `<g transform="translate(${x} ${y})">${drawPanel(panel)}</g>`;
  });
  const lines = notes.map(
    (note, i) => `<text class="note" x="16" y="${grid_height + 10 + i * 16}">${escaped(note)}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escaped(all.map(({ title }) => title).join('; '))}</title>`,
    `<style>${STYLE}\n</style>`,
    `<rect class="ground" width="${width}" height="${height}" rx="6"/>`,
    ...drawn,
    ...lines,
    '</svg>\n',
  ].join('\n');
}

function drawPanel({ title, unit, digits, rows, limit }: Panel): string {
  const head = `<text class="title" y="16">${escaped(title)}</text>`;
  return [head, ...rows.map((row, i) => drawRow(row, PANEL.title + i * PANEL.row, limit, unit, digits))].join('\n');
}

function drawRow({ label, value, own }: BarRow, y: number, limit: number, unit: string, digits: number): string {
  const room = PANEL.width - PANEL.label - PANEL.number;
  const length = round(Math.max(1, (Math.min(value, limit) / limit) * room));
  const [top, base] = [y - 2, y + BAR_HEIGHT - 3];
  const cut = `<path class="cut" d="M${PANEL.label + length - 16} ${top + BAR_HEIGHT + 2}l6 -${BAR_HEIGHT + 4}"/>`;
  return [
    `<text x="${PANEL.label - 8}" y="${base}" text-anchor="end">${escaped(label)}</text>`,
    `<rect class="bar${own ? ' own' : ''}" x="${PANEL.label}" y="${top}" width="${length}" height="${BAR_HEIGHT}" rx="2"/>`,
    ...(value > limit ? [cut] : []),
    `<text class="value" x="${PANEL.label + length + 8}" y="${base}">${number(value, digits)} ${unit}</text>`,
  ].join('');
}

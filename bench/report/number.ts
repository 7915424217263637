// How numbers are written, in tables and charts.

/** Groups of three, a fixed number of digits; a dash where there is nothing to say. */
export function number(value: number | undefined, digits: number): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  return value
    .toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
    .replaceAll(',', ' ');
}

export function plural(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

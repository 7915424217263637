// JSON as Python's json.dumps writes it by default: a space after `,` and `:`, everything beyond ASCII escaped.
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

export function pythonJson(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(', ')}]`;
  if (typeof value === 'object' && value !== null)
    return `{${Object.entries(value)
      .map(([key, member]) => `${text(key)}: ${pythonJson(member)}`)
      .join(', ')}}`;
  return typeof value === 'string' ? text(value) : JSON.stringify(value);
}

const text = (value: string): string =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

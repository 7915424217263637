// A process's environment variables as a Markdown table, from the zod schema that validates them.
import * as z from 'zod';

interface Property {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly format?: string;
}

const SAFE_MAX = Number.MAX_SAFE_INTEGER;

/** @throws {Error} naming a variable that has no meaning: `.describe()` gives it one. */
export function variableTable(schema: z.ZodObject): string {
  const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  const required = new Set(json.required ?? []);
  const rows = Object.entries((json.properties ?? {}) as Record<string, Property>).map(([name, property]) => {
    if (property.description === undefined) throw new Error(`${name} has no .describe() in its schema`);
    return `| \`${name}\` | ${defaultOf(name, property, required.has(name))} | ${values(name, property)} | ${property.description} |`;
  });
  return ['| variable | default | values | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

/** The names alone, each with its default where it has one: for variables whose meaning is known elsewhere. */
export function namesAndDefaults(schema: z.ZodObject): string {
  const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  return Object.entries((json.properties ?? {}) as Record<string, Property>)
    .map(([name, { default: value }]) => (value === undefined ? `\`${name}\`` : `\`${name}\` (\`${String(value)}\`)`))
    .join(', ');
}

function defaultOf(name: string, property: Property, required: boolean): string {
  if (required) return '**required**';
  if (property.default === undefined) return '';
  const readable = typeof property.default === 'number' ? sized(name, property.default) : null;
  return `\`${String(property.default)}\`${readable === null ? '' : ` (${readable})`}`;
}

function values(name: string, property: Property): string {
  if (property.enum !== undefined) return property.enum.map((value) => `\`${value}\``).join(', ');
  if (property.type === 'integer' || property.type === 'number') return range(name, property);
  return property.format === 'uri' ? 'URL' : 'text';
}

function range(name: string, { minimum = 0, maximum = SAFE_MAX }: Property): string {
  const unit = name.endsWith('_MS') ? ' ms' : name.endsWith('_BYTES') ? ' bytes' : '';
  return maximum === SAFE_MAX ? `from ${minimum}${unit}` : `${minimum} to ${maximum}${unit}`;
}

const BYTES = [
  ['GiB', 1024 ** 3],
  ['MiB', 1024 ** 2],
  ['KiB', 1024],
] as const;
const TIMES = [
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const;

/** `16 MiB`, `10 min`; null where the number says it by itself. */
function sized(name: string, value: number): string | null {
  const units = name.endsWith('_BYTES') ? BYTES : name.endsWith('_MS') ? TIMES : [];
  const unit = units.find(([, size]) => value >= size && value % size === 0);
  return unit === undefined ? null : `${value / unit[1]} ${unit[0]}`;
}

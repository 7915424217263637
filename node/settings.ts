// Settings from the environment that gateway and sidecar share.
import * as z from 'zod';

/** The configuration does not allow a start. The message is one line that names the variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** The variables that are set. An empty variable counts as unset. */
export const given = (env: Readonly<Record<string, string | undefined>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => Boolean(entry[1])));

/** The error for a process that is started with arguments, which would otherwise be ignored. */
export const NO_ARGUMENTS =
  'there are no options: settings are environment variables, all of them in docs/configuration.md';

/** Parses a number strictly: `Number` would read a blank as 0 and accept hexadecimal digits. A default is a number already. */
const read = (value: unknown) => (/^\d+$/.test(String(value)) ? Number(value) : Number.NaN);

const NOT_WHOLE = 'must be a whole number in decimal digits';
const number = z.number({ error: ({ code }) => (code === 'invalid_type' ? NOT_WHOLE : undefined) });

/** A whole number from `min` to `max`, both included. */
export function wholeNumber(min: number, max: number) {
  const range = `must be from ${min} to ${max}`;
  return z.preprocess(read, number.min(min, range).max(max, range));
}

/** A {@link wholeNumber} with a default. */
export const integer = (fallback: number, min: number, max: number) => wholeNumber(min, max).prefault(fallback);

/** Whether a URL contains a user name or a password, as `fetch` parses it. */
export function namesUser(url: string): boolean {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  return parsed !== null && (parsed.username !== '' || parsed.password !== '');
}

/** The URL of a service. `fetch` rejects a URL with a user name, and its error message quotes the whole URL. */
export const httpUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
  .refine((url) => !namesUser(url), 'must have no user name and no password');

export const logLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info');

const MAX_SOCKET_PATH_BYTES = 100;
const encoder = new TextEncoder();

/** Whether an absolute path fits into a Unix socket address. */
export const isSocketPath = (path: string): boolean => encoder.encode(path).length <= MAX_SOCKET_PATH_BYTES;

/** SIDECAR_SOCKET. `resolve` makes the path absolute before its length is checked. */
export const socketPath = (resolve: (path: string) => string) =>
  z
    .string()
    .min(1)
    .transform((path) => resolve(path))
    .refine(isSocketPath, {
      error: ({ input }) =>
        `must be ${MAX_SOCKET_PATH_BYTES} bytes or fewer: a Unix socket address has room for 107, not for ${input}`,
    })
    .prefault('run/sidecar.sock');

/** @throws {ConfigError} for the first variable that is wrong or absent. */
export function parseVariables<Schema extends z.ZodType>(
  schema: Schema,
  env: Readonly<Record<string, string | undefined>>,
): z.output<Schema> {
  const variables = given(env);
  const parsed = schema.safeParse(variables);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const name = String(issue?.path[0]);
  const absent = issue?.code === 'invalid_type' && !(name in variables);
  throw new ConfigError(absent ? `${name} is required` : `${name} ${issue?.message ?? 'is wrong'}`);
}

/** @param removed settings that are gone, and what replaces each. @throws {ConfigError} for one that is still set. */
export function refuseRemoved(
  env: Readonly<Record<string, string | undefined>>,
  removed: ReadonlyMap<string, string>,
): void {
  for (const [name, instead] of removed)
    if (env[name]) throw new ConfigError(`${name} is no longer a setting: ${instead}`);
}

/** Settings by the lower-case names of their variables; null for a variable without a default that is not set. */
export type Settings<Parsed> = {
  readonly [Name in keyof Parsed & string as Lowercase<Name>]-?: undefined extends Parsed[Name]
    ? Exclude<Parsed[Name], undefined> | null
    : Parsed[Name];
};

/** Converts the parsed values of a schema to {@link Settings}. */
export function settingsOf<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  parsed: z.output<z.ZodObject<Shape>>,
): Settings<z.output<z.ZodObject<Shape>>> {
  const values = parsed as Record<string, unknown>;
  const settings = Object.keys(schema.shape).map((name) => [name.toLowerCase(), values[name] ?? null]);
  return Object.fromEntries(settings) as Settings<z.output<z.ZodObject<Shape>>>;
}

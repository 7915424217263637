// /admin/keys: an admin key lists, adds, changes and removes the keys of the keys file, as `countersign keys` does. A key is shown once, when
// it is made, and its hash never.
import type { Logger } from 'pino';
import * as z from 'zod';
import { Problem } from '../base/problem.ts';
import { bodyText, readBody } from '../http/body.ts';
import type { Context, Middleware } from '../http/context.ts';
import { ANYONE, type KeyLimits, type KeyLine, type Keys, NO_LIMITS, type ParsedKeys } from '../keys/keys.ts';
import { KeyChangeError, named, readText, replaceFile, withKey, withLimits, withoutKey } from '../keys/keys-edit.ts';
import { KeyLineError, KeysFileError, parseKeys, readSettings } from '../keys/keys-file.ts';

interface KeysDeps {
  readonly config: { readonly max_body_bytes: number };
  readonly keys: Keys;
  readonly log: Logger;
}

const MAX_BODY_BYTES = 1024 * 1024;
const RETRY_SECONDS = 1;

const count = z.int().nonnegative().nullable().optional();
/** Members that are absent are not changed; null: the gateway's default. */
const limitsSchema = z.strictObject({
  rps: count,
  concurrent: count,
  streams: count,
  tee: count,
  tokens_per_day: count,
  held_bytes: count,
  models: z
    .array(z.string().regex(/^[^\s,]+$/, 'must be names without spaces and commas'))
    .nullable()
    .optional(),
  admin: z.boolean().optional(),
});
const newKeySchema = limitsSchema.extend({ name: z.string() });
type Limits = z.output<typeof limitsSchema>;

/** Rejects keys without `admin`, and web pages: a page must not act with a key that a person keeps in it. @throws {Problem} */
export const adminOnly: Middleware = (c) => {
  const { caller, incoming } = c.env;
  if (caller === ANYONE) throw new Problem('not_found', 'This gateway has no keys file (API_KEYS_FILE).');
  if (incoming.headers.origin !== undefined || incoming.headers['sec-fetch-site'] !== undefined)
    throw new Problem('origin_not_allowed', 'Web pages may not manage keys.');
  if (!caller.limits.admin)
    throw new Problem(
      'permission_denied',
      'This route is for admin keys, which "countersign keys add NAME --admin" makes.',
    );
};

/** @throws {Problem} not_found */
function fileOf({ file }: Keys): string {
  if (file !== null) return file;
  throw new Problem(
    'not_found',
    'The keys came sealed (SECRETS=sealed): no file holds them. The next start takes others.',
  );
}

export function keyRoutes({ config, keys, log }: KeysDeps) {
  /** Reads the file, writes what `change` returns, and uses it at once. */
  function edit<T>(c: Context, action: string, name: string, change: (text: string) => { text: string; result: T }): T {
    try {
      const file = fileOf(keys);
      const before = readText(file) ?? '';
      const { text, result } = change(before);
      const parsed = parsedAgain(text, config.max_body_bytes);
      if (!parsed.keys.some(({ limits }) => limits.admin))
        throw new KeyChangeError('would hold no admin key: add another first, or use the command line');
      replaceFile(file, text);
      keys.use(parsed);
      log.info({ id: c.env.id, key: c.env.caller.name, name }, `a key was ${action}`);
      return result;
    } catch (error) {
      throw problemOf(error, log);
    }
  }

  return {
    list(c: Context): Response {
      try {
        const parsed = parseKeys(readText(fileOf(keys)) ?? '');
        return c.json({
          keys: parsed.keys.map(shown),
          every_key: parsed.defaults === null ? null : countsOf(parsed.defaults),
        });
      } catch (error) {
        throw problemOf(error, log);
      }
    },

    async add(c: Context): Promise<Response> {
      const { name, ...limits } = await bodyOf(c, newKeySchema);
      const added = edit(c, 'added', name, (before) => {
        const { text, key } = withKey(before, name, limitsOf(limits, NO_LIMITS));
        return { text, result: { ...shown(named(text, name)), key } };
      });
      return c.json(added, 201);
    },

    async change(c: Context): Promise<Response> {
      const limits = await bodyOf(c, limitsSchema);
      const name = c.req.param('name') ?? '';
      const changed = edit(c, 'changed', name, (before) => {
        const text = withLimits(before, name, limitsOf(limits, named(before, name).limits));
        return { text, result: shown(named(text, name)) };
      });
      return c.json(changed);
    },

    remove(c: Context): Response {
      const name = c.req.param('name') ?? '';
      edit(c, 'removed', name, (before) => ({ text: withoutKey(before, name), result: null }));
      return c.json({ name, removed: true });
    },
  };
}

/** The file was valid, so it is the change that is not. @throws {KeyLineError} */
function parsedAgain(text: string, max_body_bytes: number): ParsedKeys {
  try {
    return parseKeys(text, max_body_bytes);
  } catch (error) {
    throw error instanceof KeysFileError ? new KeyLineError(error.message, { cause: error }) : error;
  }
}

const countsOf = ({ models: _, admin: __, ...counts }: KeyLimits) => counts;

/** A key as it is listed, without its hash. */
function shown({ name, limits, plain }: KeyLine) {
  const { models, ...rest } = limits;
  return { name, ...rest, models: models === null ? null : [...models], plain };
}

/** @throws {KeyLineError} */
function limitsOf(changes: Limits, before: KeyLimits): KeyLimits {
  const { models = before.models === null ? null : [...before.models], admin = before.admin, ...counts } = changes;
  const settings = (['rps', 'concurrent', 'streams', 'tee', 'tokens_per_day', 'held_bytes'] as const).flatMap(
    (name) => {
      const value = counts[name] === undefined ? before[name] : counts[name];
      return value === null ? [] : [`${name.replaceAll('_', '-')}=${value}`];
    },
  );
  if (models !== null) settings.push(`models=${models.join(',')}`);
  return readSettings(admin ? [...settings, 'admin'] : settings);
}

async function bodyOf<T extends z.ZodType>(c: Context, schema: T): Promise<z.output<T>> {
  const text = bodyText(await readBody(c.env.incoming, MAX_BODY_BYTES, c.env.permit));
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The request body is not JSON.');
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const param = issue?.code === 'unrecognized_keys' ? issue.keys[0] : issue?.path[0];
  throw new Problem('invalid_request', `${String(param ?? 'body')}: ${issue?.message}`, {
    param: param === undefined ? null : String(param).slice(0, 128),
  });
}

function problemOf(error: unknown, log: Logger): unknown {
  if (error instanceof KeyLineError) return new Problem('invalid_request', `${error.message}.`);
  if (error instanceof KeyChangeError)
    return new Problem(error.missing ? 'not_found' : 'invalid_request', `The keys file ${error.message}.`, {
      param: 'name',
    });
  // Its message may name a path of the machine, which is for the log.
  if (error instanceof KeysFileError) log.error(`API_KEYS_FILE ${error.message}`);
  if (error instanceof KeysFileError)
    return new Problem('keys_unavailable', 'The keys file cannot be read or written now: the log says why.', {
      cause: error,
      retryAfterSeconds: RETRY_SECONDS,
    });
  return error;
}

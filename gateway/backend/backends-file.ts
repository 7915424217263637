// Reads the file of several backends (BACKENDS_FILE). Its errors name the member that is wrong.
import { isAbsolute } from 'node:path';
import * as z from 'zod';
import { duplicateMember } from '../../proto/json.ts';
import { backendKey, backendUrl } from '../base/config.ts';
import type { ReadFollowed } from '../keys/followed-files.ts';

const MAX_FILE_BYTES = 1024 * 1024;
const MAX_KEY_FILE_BYTES = 16 * 1024;
const MAX_BACKENDS = 64;
const MAX_MODELS = 1_000;
const MAX_MODEL_CHARACTERS = 256;
const MAX_WEIGHT = 1_000;

const WEIGHT = `must be a whole number from 1 to ${MAX_WEIGHT}`;
const NAME = 'must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, and not only digits';
const MODELS = `must be 1 to ${MAX_MODELS} names of models; without \`models\` a backend serves every model that no other names`;
const MODEL = `must be a name of 1 to ${MAX_MODEL_CHARACTERS} characters`;
const KEY_FILE = 'must be an absolute path';
const BACKENDS = `must be a list of 1 to ${MAX_BACKENDS} backends`;

const backendSchema = z.strictObject({
  url: backendUrl('api_key_file'),
  /** For logs, metrics and /health. Digits only are not allowed, because a backend without a name has its index as name. */
  name: z
    .string(NAME)
    .regex(/^(?!\d+$)[A-Za-z0-9._-]{1,64}$/, NAME)
    .optional(),
  models: z
    .array(z.string(MODEL).min(1, MODEL).max(MAX_MODEL_CHARACTERS, MODEL), MODELS)
    .min(1, MODELS)
    .max(MAX_MODELS, MODELS)
    .optional(),
  weight: z.int(WEIGHT).min(1, WEIGHT).max(MAX_WEIGHT, WEIGHT).default(1),
  api_key_file: z.string(KEY_FILE).refine(isAbsolute, KEY_FILE).optional(),
});
const fileSchema = z.strictObject({
  backends: z.array(backendSchema, BACKENDS).min(1, BACKENDS).max(MAX_BACKENDS, BACKENDS),
});

/** A backend's entry in the file, with the key from its key file. */
export interface BackendEntry {
  readonly name: string;
  readonly url: string;
  /** null: every model that no other backend names. */
  readonly models: ReadonlySet<string> | null;
  readonly weight: number;
  readonly api_key: string | null;
}

/** The file cannot be used. The message is one line that names the member and quotes no value. */
export class BackendsFileError extends Error {
  override readonly name = 'BackendsFileError';
}

/** @throws {BackendsFileError} */
export function readBackendsFile(path: string, read: ReadFollowed): BackendEntry[] {
  const { backends } = parseBackends(textOf(path, MAX_FILE_BYTES, '', read));
  return backends.map(({ url, name, models, weight, api_key_file }, i) => ({
    name: name ?? String(i),
    url,
    models: models === undefined ? null : new Set(models),
    weight,
    api_key: api_key_file === undefined ? null : keyFrom(api_key_file, `backends[${i}].api_key_file: `, read),
  }));
}

function parseBackends(text: string): z.output<typeof fileSchema> {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch {
    // The parser's message quotes the file.
    throw new BackendsFileError('is not JSON');
  }
  const parsed = fileSchema.safeParse(value);
  if (!parsed.success) throw new BackendsFileError(messageOf(parsed.error.issues[0] as z.core.$ZodIssue));
  if (duplicateMember(text) !== null) throw new BackendsFileError('names a member twice');
  for (const member of ['url', 'name'] as const) {
    const values = parsed.data.backends.map((backend) => backend[member]);
    const second = values.findIndex((one, i) => one !== undefined && values.indexOf(one) < i);
    if (second < 0) continue;
    const first = values.indexOf(values[second]);
    throw new BackendsFileError(`backends[${second}].${member}: is that of backends[${first}]`);
  }
  return parsed.data;
}

/** `backends[1].url: must be …`. Names of members are quoted, values never. */
function messageOf(issue: z.core.$ZodIssue): string {
  const place = issue.path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('');
  const where = place === '' ? '' : `${place.slice(1)}: `;
  if (issue.code === 'unrecognized_keys')
    return `${where}has a member that nobody knows: ${JSON.stringify(issue.keys[0]?.slice(0, 64))}`;
  if (issue.code === 'invalid_type' && issue.expected === 'object') return `${where}must be a JSON object`;
  return `${where}${issue.message}`;
}

function keyFrom(path: string, where: string, read: ReadFollowed): string {
  const key = backendKey.safeParse(textOf(path, MAX_KEY_FILE_BYTES, where, read));
  if (!key.success) throw new BackendsFileError(`${where}${key.error.issues[0]?.message}`);
  return key.data;
}

function textOf(path: string, max_bytes: number, where: string, read: ReadFollowed): string {
  try {
    return read(path, max_bytes);
  } catch (cause) {
    const { code = 'error' } = cause as NodeJS.ErrnoException;
    const reason = code === 'EFBIG' ? `is larger than ${max_bytes} bytes` : `cannot be read: ${code}`;
    throw new BackendsFileError(`${where}${reason}`, { cause });
  }
}

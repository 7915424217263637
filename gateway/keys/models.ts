// Which models a key may ask for. A key without a list is not looked at.
import { topLevelMembers } from '../../proto/json.ts';
import { Problem } from '../problem.ts';
import type { Caller } from './caller.ts';

/** Of what a client has written, in a message to it. */
const MAX_SHOWN = 128;

/** Go's encoding/json and others read names in any case: two of them are one there, and a parser takes the first or the last. */
function checkNames(names: readonly string[]): void {
  const seen = new Set<string>();
  for (const name of names) {
    const one = folded(name);
    if (seen.has(one) || (one === folded('model') && name !== 'model')) {
      const shown = name.slice(0, MAX_SHOWN);
      const message = `${shown}: this API key's requests name each member once, in whatever case, and model in lower case.`;
      throw new Problem('invalid_request', message, { param: shown });
    }
    seen.add(one);
  }
}

/** What Unicode's case folding, simple or full, makes equal is equal here; a few names more are too (ß and ss), and nobody has them. */
const folded = (name: string) => name.toLowerCase().toUpperCase();

/**
 * OpenAI's own words: a model that a key may not use is not told from one that there is not.
 * @param text the body that `value` was parsed from
 * @throws {Problem} model_not_found; invalid_request where it is not clear which model the backend would take.
 */
export function checkModel({ limits: { models } }: Caller, text: string, value: unknown): void {
  if (models === null) return;
  const model = (value as { model?: unknown } | null)?.model;
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  const names = isObject ? topLevelMembers(text).map(({ key }) => key) : [];
  checkNames(names);
  if (typeof model !== 'string' || !names.includes('model'))
    throw new Problem('invalid_request', 'model: this API key must name one model.', { param: 'model' });
  if (!models.has(model)) throw noSuchModel(model);
}

/**
 * What else a key with a list may ask for: the list itself, one of its models, and JSON bodies that name one.
 * @throws {Problem} permission_denied, model_not_found
 */
export function checkPath({ limits: { models } }: Caller, method: string, path: string, json: boolean): void {
  if (models === null || (method === 'POST' && json)) return;
  const [, one] = /^\/models(?:\/(.*))?$/.exec(path.split('?', 1)[0] ?? '') ?? [null, null];
  if (method !== 'GET' || one === null)
    throw new Problem('permission_denied', 'This API key is for some models only, and this request names none.');
  if (one !== undefined && one !== '' && !models.has(decodeURIComponent(one)))
    throw noSuchModel(decodeURIComponent(one));
}

function noSuchModel(model: string): Problem {
  const name = model.slice(0, MAX_SHOWN);
  return new Problem('model_not_found', `The model \`${name}\` does not exist or you do not have access to it.`);
}

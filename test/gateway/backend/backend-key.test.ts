import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/base/config.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
const file = () => join(folder.path, 'key');
const keyOf = (env: Record<string, string>) =>
  loadConfig({ BACKEND_URL: 'http://127.0.0.1:1/v1', ...env }).backend_api_key;

beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder.remove());

describe("the backend's key", () => {
  it('comes from the environment, from a file, or there is none', () => {
    writeFileSync(file(), ' from-a-file\n');
    expect(keyOf({})).toBeNull();
    expect(keyOf({ BACKEND_API_KEY_FILE: file() })).toBe('from-a-file');
    expect(keyOf({ BACKEND_API_KEY: 'given' })).toBe('given');
    // Compose hands on what is not set as an empty text.
    expect(keyOf({ BACKEND_API_KEY: 'given', BACKEND_API_KEY_FILE: '' })).toBe('given');
    expect(keyOf({ BACKEND_API_KEY: '', BACKEND_API_KEY_FILE: file() })).toBe('from-a-file');
  });

  it('stops the start where it is given twice: neither is the right one in silence', () => {
    writeFileSync(file(), 'from-a-file\n');
    expect(() => keyOf({ BACKEND_API_KEY: 'given', BACKEND_API_KEY_FILE: file() })).toThrow(
      /^BACKEND_API_KEY and BACKEND_API_KEY_FILE are both set: set one of them$/,
    );
  });

  it('stops the start with one line that names the variable, and not the key, when the file is no use', () => {
    expect(() => keyOf({ BACKEND_API_KEY_FILE: file() })).toThrow(/^BACKEND_API_KEY_FILE cannot be read: ENOENT$/);
    for (const text of ['', 'two words', 'r\u00e4tsel']) {
      writeFileSync(file(), text);
      expect(() => keyOf({ BACKEND_API_KEY_FILE: file() })).toThrow(
        /^BACKEND_API_KEY_FILE must be printable ASCII without spaces$/,
      );
    }
  });
});

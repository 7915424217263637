// The set-up of the tests of several backends: scripted backends, their file, and a gateway that follows it.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach } from 'vitest';
import { type Backend, chatAnswer, startBackend } from '../../support/backend.ts';
import { type Answer, ask, CHAT, chat } from '../../support/client.ts';
import { type Folder, type RunningGateway, startGateway, temporaryFolder } from '../../support/harness.ts';

export interface BackendsStage {
  readonly folder: Folder;
  readonly file: string;
  readonly backends: readonly Backend[];
  readonly gateway: RunningGateway;
  readonly url: string;
  /** The gateway's log so far. */
  readonly lines: readonly Record<string, unknown>[];
}

const closing: (() => Promise<void> | void)[] = [];
/** What a test started is closed after it, the last first. */
export const afterwards = (close: () => Promise<void> | void): void => void closing.push(close);
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** As an editor or a tool would: a reader sees the old file or the new one. */
export function write(file: string, content: object | string): void {
  writeFileSync(`${file}.new`, typeof content === 'string' ? content : JSON.stringify(content));
  renameSync(`${file}.new`, file);
}

export const written = (file: string): string => readFileSync(file, 'utf8');

/** A backend whose answers and whose list of models say which one it is. */
export async function numberedBackend(i: number): Promise<Backend> {
  const backend = await startBackend(chatAnswer(`from ${i}`));
  backend.models = JSON.stringify({ object: 'list', data: [{ id: `m${i}`, object: 'model', owned_by: `b${i}` }] });
  afterwards(() => backend.close().catch(() => {}));
  return backend;
}

/** `entries` is the file's list, made from so many backends. */
export async function stageOf(
  count: number,
  entries: (backends: readonly Backend[], folder: Folder) => readonly object[] = (backends) =>
    backends.map(({ url }) => ({ url })),
  env: Record<string, string> = {},
): Promise<BackendsStage> {
  const folder = temporaryFolder();
  afterwards(() => folder.remove());
  const file = join(folder.path, 'backends.json');
  const backends = await Promise.all(Array.from({ length: count }, (_, i) => numberedBackend(i)));
  write(file, { backends: entries(backends, folder) });
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const gateway = await startGateway({ BACKENDS_FILE: file, SIDECAR_SOCKET: '/nowhere/s.sock', ...env }, log);
  afterwards(() => gateway.close());
  return { folder, file, backends, gateway, url: gateway.url, lines };
}

/** Which backend answered; null: none did. */
export const answeredBy = ({ text }: Answer): number | null => {
  const found = /from (\d)/.exec(text)?.[1];
  return found === undefined ? null : Number(found);
};

/** Which backends answer so many chats, one after another. */
export async function turns(url: string, count: number, body: object = CHAT): Promise<(number | null)[]> {
  const found: (number | null)[] = [];
  for (let i = 0; i < count; i++) found.push(answeredBy(await chat(url, body)));
  return found;
}

export const get = (url: string, headers = {}): Promise<Answer> => ask(url, { method: 'GET', headers });
export const health = async (url: string) => (await get(`${url}/health`)).json();
/** The ids in GET /v1/models. */
export const modelsAt = async (url: string, headers = {}): Promise<string[]> =>
  (await get(`${url}/v1/models`, headers)).json().data.map(({ id }: { id: string }) => id);

// The table of what passed: each test enters its cell when it is through, and the last file to end prints the whole.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Delivery } from './driver.ts';

/** With tee: how it was asked for, and where the attestation was found and proven. */
export interface Way {
  readonly asked: string;
  readonly found: string;
}

interface Entry {
  readonly client: string;
  readonly delivery: Delivery;
  /** null without tee. */
  readonly way: Way | null;
}

export interface Matrix {
  /** Called at the end of a test: what throws before it leaves its cell empty. */
  passed(client: string, delivery: Delivery, way: Way | null): void;
  /** This file's rows, or everybody's where this file is the last of the run. */
  print(): void;
}

/** Test files run in processes of their own; one run's share their parent. What runs of single files left there goes after a while. */
const BASE = fileURLToPath(new URL('../../.cache/clients-matrix', import.meta.url));
/** Where the suite `clients` has them. */
const { NEWEST_CLIENTS } = process.env;
const folder = join(BASE, String(process.ppid));
const FORGET_MS = 600_000;

/** @param file this test file's name; @param files how many files write into the table in a full run */
export function createMatrix(file: string, files = 7): Matrix {
  const entries: Entry[] = [];
  return {
    passed: (client, delivery, way) => void entries.push({ client, delivery, way }),
    print() {
      mkdirSync(BASE, { recursive: true });
      for (const run of readdirSync(BASE)) {
        const path = join(BASE, run);
        const written_ms = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
        if (Date.now() - written_ms > FORGET_MS) rmSync(path, { recursive: true, force: true });
      }
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, `${file}.json`), JSON.stringify(entries));
      const names = readdirSync(folder).sort();
      const complete = names.length === files;
      const all = complete
        ? names.flatMap((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Entry[])
        : entries;
      if (complete) rmSync(folder, { recursive: true, force: true });
      console.log(`\n${table(all)}\n`);
    },
  };
}

/** `openai 7.57.0 (npm)`, from what is installed. */
export function npmName(name: string, newest = NEWEST_CLIENTS): string {
  return `${name} ${npmVersion(name, newest)} (npm)`;
}

/** `newest`: the folder to look in first. */
export function npmVersion(name: string, newest = NEWEST_CLIENTS): string {
  // Read as a file: packages need not export their package.json.
  const path = `node_modules/${name}/package.json`;
  const first = newest === undefined ? '' : join(newest, path);
  const file = existsSync(first) ? first : new URL(`../../${path}`, import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

const HEAD = ['client', 'answer', 'no tee', 'with tee: where the attestation is', 'asked for by'];
const NONE = '–';

function table(entries: readonly Entry[]): string {
  const rows = [...new Set(entries.map((entry) => entry.client))].flatMap((client) =>
    (['whole', 'stream'] as const).flatMap((delivery) => {
      const here = entries.filter((entry) => entry.client === client && entry.delivery === delivery);
      const ways = here.map((entry) => entry.way).filter((way) => way !== null);
      const places = [...new Set(ways.map((way) => way.found))];
      const off = here.some((entry) => entry.way === null) ? 'ok' : NONE;
      return (places.length === 0 ? [NONE] : places).map((place, i) => {
        const asked = ways.filter((way) => way.found === place).map((way) => way.asked);
        return [...(i === 0 ? [client, delivery, off] : ['', '', '']), place, [...new Set(asked)].join(' | ') || NONE];
      });
    }),
  );
  const widths = HEAD.map((head, i) => Math.max(head.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return [line(HEAD), line(widths.map((width) => '─'.repeat(width))), ...rows.map(line)].join('\n');
}

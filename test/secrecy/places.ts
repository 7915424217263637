// The places where a secret could come to lie: what processes print, are called and were given, what they opened, every file they made.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

export interface Place {
  readonly name: string;
  readonly content: string | Buffer;
}

/** A process and those that it started, as Linux shows them. */
export function processPlaces(name: string, pid: number): Place[] {
  const places: Place[] = [];
  for (const id of [pid, ...descendants(pid)]) {
    const of = (file: string) => readFileSync(`/proc/${id}/${file}`);
    for (const file of ['cmdline', 'comm', 'environ'])
      places.push({ name: `/proc/PID/${file} of the ${name}${id === pid ? '' : "'s child"}`, content: of(file) });
    const open = readdirSync(`/proc/${id}/fd`).map((fd) => link(`/proc/${id}/fd/${fd}`));
    places.push({ name: `names of the open files of the ${name}`, content: open.join('\n') });
  }
  return places;
}

function descendants(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) => {
    try {
      return readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  });
  return children.flatMap((child) => [child, ...descendants(child)]);
}

function link(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Every file below a folder, its name and its content. */
export function filePlaces(folder: string, label: string): Place[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    const name = `${label}${path.slice(folder.length)}`;
    return entry.isFile() ? [{ name, content: Buffer.concat([Buffer.from(path), readFileSync(path)]) }] : [];
  });
}

/** Soft limit of a core dump's size in bytes. */
export function coreLimit(pid: number): string {
  return /^Max core file size\s+(\S+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'utf8'))?.[1] ?? 'unknown';
}

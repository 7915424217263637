// What compose.yaml gives the gateway of its machine.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

const GiB = 1024 ** 3;

function composeBounds(): { memory_bytes: number; descriptors: number } {
  const file = readFileSync(new URL('../../../compose.yaml', import.meta.url), 'utf8');
  const gateway = parse(file, { merge: true })['x-gateway'];
  const gib = /:-(\d+)g\}$/.exec(gateway.mem_limit)?.[1];
  if (gib === undefined) throw new Error(`compose.yaml: no limit in ${gateway.mem_limit}`);
  return { memory_bytes: Number(gib) * GiB, descriptors: gateway.ulimits.nofile };
}

export const COMPOSE = composeBounds();

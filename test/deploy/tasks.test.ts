// However many workers WORKERS may ask for, the limits that the gateway is deployed with have room for their threads.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import * as z from 'zod';
import { schema } from '../../gateway/base/config.ts';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

/** A worker has 7 threads at its start, and up to 13 once it has verified and looked at files. */
const THREADS_OF_A_WORKER = 24;
const THREADS_OF_THE_PRIMARY = 32;

it('the most workers that WORKERS allows have room for their threads, under compose and systemd', () => {
  const { properties = {} } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  const { maximum: workers } = properties.WORKERS as { maximum: number };
  const threads = THREADS_OF_THE_PRIMARY + THREADS_OF_A_WORKER * workers;
  const { services } = parse(read('compose.yaml'), { merge: true });
  for (const name of ['gateway', 'demo-gateway'])
    expect([name, services[name].pids_limit]).toEqual([name, expect.toSatisfy((limit: number) => limit >= threads)]);
  const unit = read('deploy/systemd/countersign-gateway.service');
  expect(Number(/^TasksMax=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThanOrEqual(threads);
});

// The limits that the gateway is deployed with have room for its threads.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

/** A gateway has 7 threads at its start, and up to 13 once it has verified and looked at files. In its container runs the health check too. */
const THREADS = 2 * 24;

it('the gateway has room for its threads, under compose and systemd', () => {
  const { services } = parse(read('compose.yaml'), { merge: true });
  for (const name of ['gateway', 'demo-gateway'])
    expect([name, services[name].pids_limit]).toEqual([name, expect.toSatisfy((limit: number) => limit >= THREADS)]);
  const unit = read('deploy/systemd/countersign-gateway.service');
  expect(Number(/^TasksMax=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThanOrEqual(THREADS);
});

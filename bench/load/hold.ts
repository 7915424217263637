// Streams that are open and silent: held for memory, left one by one for the time until the backend knows.

import type { HoldJob, Judged, LeaveJob, LeaveResult } from '../jobs.ts';
import type { Scene } from '../scene.ts';
import { now_us, sleep } from '../system/clock.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { streamReader } from './check.ts';
import { Connection } from './connection.ts';

const OPEN_AT_ONCE = 50;
const FIRST_CHUNK_MS = 10_000;
const held = new Set<Connection>();

/** Resolves when the stream's first chunk is there. @throws when it does not come. */
function openHeld(aim: HoldJob['aim'], id: number): Promise<Connection> {
  const scene: Scene = { kind: 'hold', id };
  const connection = new Connection(aim.port);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no first chunk')), FIRST_CHUNK_MS);
    const settle = <A>(then: (value: A) => void, value: A) => {
      clearTimeout(timer);
      then(value);
    };
    connection.ask(
      requestSource(aim, scene)(),
      streamReader(
        expectation(aim, scene),
        () => settle(resolve, connection),
        ({ wrong }) => settle(reject, new Error(wrong ?? 'the stream ended')),
      ),
    );
  });
}

export async function hold(job: HoldJob): Promise<Judged> {
  const judge = new Judge();
  for (let opened = 0; opened < job.streams; opened += OPEN_AT_ONCE) {
    const batch = Array.from({ length: Math.min(OPEN_AT_ONCE, job.streams - opened) }, () => openHeld(job.aim, 0));
    for (const one of await Promise.allSettled(batch)) {
      if (one.status === 'fulfilled') held.add(one.value);
      else judge.take(String(one.reason));
    }
  }
  return judge.verdict;
}

export async function release(): Promise<void> {
  for (const connection of held) connection.leave();
  held.clear();
}

export async function leave(job: LeaveJob): Promise<LeaveResult> {
  const judge = new Judge();
  const left: [number, number][] = [];
  await Promise.all(
    Array.from({ length: job.streams }, async (_, i) => {
      await sleep((i * 1e3) / job.rate);
      try {
        const connection = await openHeld(job.aim, job.first_id + i);
        await sleep(20);
        left.push([job.first_id + i, now_us()]);
        connection.leave();
      } catch (error) {
        judge.take(String(error));
      }
    }),
  );
  return { left, ...judge.verdict };
}

// Streams that are open and silent, for the memory of each.

import type { HoldJob, Judged } from '../jobs.ts';
import type { Scene } from '../scene.ts';
import { expectation, Judge, requestSource } from './ask.ts';
import { streamReader } from './check.ts';
import { Connection } from './connection.ts';

const OPEN_AT_ONCE = 50;
const FIRST_CHUNK_MS = 10_000;
const held = new Set<Connection>();

/** Resolves when the stream's first chunk is there. @throws when it does not come. */
function openHeld(aim: HoldJob['aim']): Promise<Connection> {
  const scene: Scene = { kind: 'hold' };
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
    const batch = Array.from({ length: Math.min(OPEN_AT_ONCE, job.streams - opened) }, () => openHeld(job.aim));
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

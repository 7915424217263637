import { readFileSync } from 'node:fs';
import { describe, expect, inject, it } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { type Outcome, startLoad } from './load.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const PER_SECOND = 20;
const SECONDS_BEFORE = 2;
const SECONDS_AFTER = 4;

describe.skipIf('missing' in made)('the sidecar under 20 requests with tee a second', () => {
  const stage = stageOf(made as Made);
  const state = (format: string) =>
    stage.docker('inspect', '-f', format, stage.container('demo-sidecar')).then((text) => text.trim());
  const healthy = () =>
    ask(`${stage.url}/health`, { method: 'GET' }).then(
      (answer) => answer.json().status === 'ok',
      () => false,
    );
  const wait = (seconds: number) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

  /** Does it to the sidecar while requests come, and prints what they saw. */
  async function whileAsked(what: string, act: () => Promise<unknown>): Promise<void> {
    await eventually(healthy, 30_000);
    const load = startLoad(stage, PER_SECOND);
    await wait(SECONDS_BEFORE);
    const acted_ms = performance.now();
    await act();
    const done_ms = performance.now();
    await wait(SECONDS_AFTER);
    const outcomes = await load.stop();
    print(what, outcomes, acted_ms, done_ms);
    expect(outcomes.length).toBeGreaterThanOrEqual(PER_SECOND * (SECONDS_BEFORE + SECONDS_AFTER) - 1);
    expect(outcomes.map(({ wrong }) => wrong).filter((wrong) => wrong !== null)).toEqual([]);
  }

  it('restarted: no request fails', async () => {
    const before = await state('{{.State.StartedAt}}');
    await whileAsked('restart', () => stage.compose('restart', 'demo-sidecar'));
    expect(await state('{{.State.StartedAt}}')).not.toBe(before);
  });

  it('recreated: no request fails', async () => {
    const before = await state('{{.Id}}');
    await whileAsked('recreate', () =>
      stage.compose('up', '--detach', '--no-deps', '--no-build', '--force-recreate', 'demo-sidecar'),
    );
    expect(await state('{{.Id}}')).not.toBe(before);
  });

  it('killed with SIGKILL: no request fails, and it comes back by itself', async () => {
    // Docker forgets its restarts ten seconds after a start; before that it would wait longer from one to the next.
    const restarts = Number(await state('{{.RestartCount}}'));
    await whileAsked('SIGKILL', async () => process.kill(await mainProcess(), 'SIGKILL'));
    expect(Number(await state('{{.RestartCount}}'))).toBe(restarts + 1);
  });

  /** Node itself, under the container's init: as the kernel would kill it, and not as `docker kill` does, which is an order to stay down. */
  async function mainProcess(): Promise<number> {
    const init = await state('{{.State.Pid}}');
    const [child] = readFileSync(`/proc/${init}/task/${init}/children`, 'utf8').trim().split(' ');
    expect(Number(child)).toBeGreaterThan(1);
    return Number(child);
  }
});

/** After SIGKILL, `done_ms` is the moment of death: recovery is from there to the first proven answer to a later request. */
function print(what: string, outcomes: readonly Outcome[], acted_ms: number, done_ms: number): void {
  const came = outcomes.map(({ came_ms }) => came_ms).sort((a, b) => a - b);
  const silence_ms = Math.max(...came.map((ms, i) => ms - (came[i - 1] ?? ms)));
  const later = outcomes.filter(({ sent_ms, wrong }) => sent_ms > done_ms && wrong === null);
  const recovered_ms = Math.min(...later.map(({ came_ms }) => came_ms)) - done_ms;
  const slowest_ms = Math.max(...outcomes.map(({ sent_ms, came_ms }) => came_ms - sent_ms));
  const failed = outcomes.filter(({ wrong }) => wrong !== null).length;
  console.log(
    `sidecar ${what}: ${failed} of ${outcomes.length} requests failed; longest time without an answer ` +
      `${Math.round(silence_ms)} ms; slowest request ${Math.round(slowest_ms)} ms; the command took ` +
      `${Math.round(done_ms - acted_ms)} ms, and the first proven answer to a later request ${Math.round(recovered_ms)} ms more`,
  );
}

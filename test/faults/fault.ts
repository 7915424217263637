// One fault, judged as every fault is: nothing that must never happen, nobody left waiting, nothing left behind; a row of the table.
import { expect, inject, type TestContext } from 'vitest';
import type { Script } from '../support/backend.ts';
import { eventually } from '../support/harness.ts';
import type { Cost } from './cost.ts';
import { NEVER } from './judge.ts';
import { type Question, see } from './seen.ts';
import type { Stage } from './stage.ts';
import { echo } from './words.ts';

/** Connections to the backend that are kept for the next request, and what Node opens for itself. */
const SPARE_DESCRIPTORS = 12;
/** Node gives memory back at its own pace, and keeps some of what so many at once took. What leaks shows in the soak. */
const SPARE_MIB = 96;
const SPARE_MIB_PER_CLIENT = 0.1;
const BACK_MS = 30_000;

/** Open while a fault happens. */
export const STREAMS = 100;
const STREAMS_WITHOUT_TEE = 20;
/** Of those: each ends with its proof, or whole where it asked for none. */
export const NOTHING_LOST = { 'stop with its proof': STREAMS, 'no tee: the stream whole': STREAMS_WITHOUT_TEE };

export class Fault {
  readonly #context: TestContext;
  readonly #stage: Stage;
  readonly #before: Cost;
  readonly #sidecarDescriptors: number;
  readonly #saw: Promise<string>[] = [];
  #number = 0;

  private constructor(context: TestContext, stage: Stage, before: Cost) {
    this.#context = context;
    this.#stage = stage;
    this.#before = before;
    this.#sidecarDescriptors = stage.sidecarCost.descriptors;
  }

  /** Asks a few questions first, so that what is measured is not the process's youth. @throws when the suite's time is over */
  static async begin(context: TestContext, stage: Stage): Promise<Fault> {
    if (Date.now() > inject('lastStart_ms')) throw new Error('the hour of the suite is over');
    const warm = new Fault(context, stage, stage.cost);
    for (let i = 0; i < 3; i++) {
      for (const stream of [true, false]) for (const tee of [true, false]) warm.ask(5, { stream, tee });
      await warm.all();
    }
    return new Fault(context, stage, stage.cost);
  }

  /** Begun while `STREAMS` tee streams and a few without tee are open, each with `pause_ms` between its chunks. */
  static async underStreams(context: TestContext, stage: Stage, pause_ms: number): Promise<Fault> {
    const fault = await Fault.begin(context, stage);
    stage.backend.seen.length = 0;
    stage.backend.script = echo(pause_ms);
    fault.ask(STREAMS, { stream: true, tee: true });
    fault.ask(STREAMS_WITHOUT_TEE, { stream: true, tee: false });
    await expect.poll(() => stage.backend.seen.length, { timeout: 30_000 }).toBe(STREAMS + STREAMS_WITHOUT_TEE);
    return fault;
  }

  /** A backend that answers by `script` to so many clients of each kind; then it is well again. */
  static async ofBackend(context: TestContext, stage: Stage, script: Script, clients = 10): Promise<Fault> {
    const fault = await Fault.begin(context, stage);
    stage.backend.script = script;
    for (const stream of [true, false]) for (const tee of [true, false]) void fault.ask(clients, { stream, tee });
    await fault.all();
    stage.backend.script = echo();
    return fault;
  }

  /** So many clients ask at once. Resolves when all have their answers, which need not be waited for. */
  async ask(clients: number, kind: Omit<Question, 'question'>): Promise<void> {
    const all = Array.from({ length: clients }, () => {
      const question = `question ${++this.#number}`;
      return see(this.#stage.url, { question, ...kind }, () => this.#stage.root);
    });
    for (const one of all) this.note(one);
    await Promise.all(all);
  }

  /** What a client saw that asks in a way of its own. */
  note(saw: Promise<string>): void {
    this.#saw.push(saw);
  }

  /** What all clients saw so far. @throws when one saw what must never happen */
  async all(): Promise<Record<string, number>> {
    const saw: Record<string, number> = {};
    for (const words of await Promise.all(this.#saw)) saw[words] = (saw[words] ?? 0) + 1;
    return saw;
  }

  /** Waits for all clients, then for the gateway to be as it was. @returns what they saw, which is in the table now */
  async end(name: string, after: 'comes back' | 'has ended' = 'comes back'): Promise<Record<string, number>> {
    const saw = await this.all();
    const left = after === 'has ended' ? null : await this.#back();
    const { meta } = this.#context.task;
    meta.faults = [...(meta.faults ?? []), { fault: name, saw, before: this.#before, after: left }];
    expect(
      Object.keys(saw).filter((words) => words.startsWith(NEVER)),
      JSON.stringify(saw),
    ).toEqual([]);
    return saw;
  }

  async #back(): Promise<Cost> {
    const stage = this.#stage;
    const { descriptors, rss_mib } = this.#before;
    await eventually(async () => (await stage.gauge('countersign_signing_queue_depth')) === 0, BACK_MS);
    // The one that asks.
    await eventually(async () => (await stage.gauge('http_server_active_requests')) <= 1, BACK_MS);
    let cost = stage.cost;
    const closed = () => {
      cost = stage.cost;
      return cost.descriptors <= descriptors + SPARE_DESCRIPTORS;
    };
    await eventually(closed, BACK_MS).catch(() => {});
    expect(cost.descriptors).toBeLessThanOrEqual(descriptors + SPARE_DESCRIPTORS);
    expect(cost.rss_mib).toBeLessThanOrEqual(rss_mib + SPARE_MIB + this.#number * SPARE_MIB_PER_CLIENT);
    // And it serves as ever.
    await stage.whole();
    expect(stage.sidecarCost.descriptors).toBeLessThanOrEqual(this.#sidecarDescriptors + SPARE_DESCRIPTORS);
    const again = new Fault(this.#context, stage, cost);
    again.ask(4, { stream: true, tee: true });
    again.ask(4, { stream: false, tee: true });
    expect(await again.all()).toEqual({ 'stop with its proof': 4, 'the answer with its proof': 4 });
    return cost;
  }
}

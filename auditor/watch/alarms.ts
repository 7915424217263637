// The webhook: one POST when a node fails, when it has stopped to, and for new warnings. What it does not take is sent again with the next
// round.
import type { Change } from './board.ts';

export interface Alarms {
  /** Passes over what is no alarm, such as a node that missed once. */
  add(change: Change, watch: string): void;
  /** Sends what waits. @returns a sentence where the webhook did not take it; never its address, which may hold a secret. */
  send(): Promise<string | null>;
}

const TIMEOUT_MS = 10_000;
/** Older ones are dropped: the history has them. */
const MAX_WAITING = 200;

export function createAlarms(webhook: string | null): Alarms {
  const waiting: object[] = [];
  return {
    add({ entry, was }, watch) {
      const { node, state, code, reason, warnings, time, entry: number } = entry;
      const isAlarm = state === 'failed' || was === 'failed' || warnings.length > 0;
      if (webhook === null || !isAlarm) return;
      waiting.push({ watch, node, state, was, code, reason, warnings, time, entry: number });
      if (waiting.length > MAX_WAITING) waiting.shift();
    },
    async send() {
      while (webhook !== null && waiting.length > 0) {
        const trouble = await post(webhook, waiting[0] ?? {});
        if (trouble !== null) return trouble;
        waiting.shift();
      }
      return null;
    },
  };
}

async function post(webhook: string, body: object): Promise<string | null> {
  try {
    const response = await fetch(webhook, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      redirect: 'manual',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.body?.cancel();
    return response.ok ? null : `the webhook answered ${response.status}: it is told again with the next round`;
  } catch {
    return 'the webhook cannot be reached: it is told again with the next round';
  }
}

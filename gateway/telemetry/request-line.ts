// The log line of an exchange, written by hand where pino's lines go: through pino it costs 7 % of a request.
import { type DestinationStream, type Logger, symbols } from 'pino';
import type { Ended } from './ended.ts';
import type { Watch } from './watch.ts';

export type RequestLine = (watch: Watch, ended: Ended, key: string | undefined) => void;

/** Lines as `log.info` of the same members would write them. Milliseconds have one decimal. */
export function createRequestLine(log: Logger): RequestLine {
  if (!log.isLevelEnabled('info')) return () => {};
  const inside = log as unknown as Record<symbol, unknown>;
  const out = inside[symbols.streamSym] as DestinationStream;
  const start = `{"level":${log.levels.values.info},"time":`;
  // `,"pid":…,"hostname":…,"name":…`
  const bindings = `${inside[symbols.chindingsSym]},"id":"`;
  return (watch, { id, method, route, status, tee, code, total_ms }, key) => {
    // What goes in as it is comes from us: an id, a method and a status from closed sets, a pattern, a code.
    let line = `${start}${Date.now()}${bindings}${id}","method":"${method}","route":"${route}","status":${status},"ms":${round(total_ms)}`;
    // `first_ms`: until the backend's first byte.
    if (watch.first_ms !== 0) line += `,"first_ms":${round(watch.first_ms - watch.began_ms)}`;
    if (watch.attested_ms !== 0) line += `,"attest_ms":${round(watch.attested_ms - watch.attesting_ms)}`;
    if (tee !== 'none') line += `,"tee":"${tee}"`;
    if (code !== null) line += `,"code":"${code}"`;
    if (key !== undefined) line += `,"key":${JSON.stringify(key)}`;
    if (watch.trace !== null) line += `,"trace_id":"${watch.trace.id}"`;
    out.write(`${line}}\n`);
  };
}

const round = (ms: number) => Math.round(ms * 10) / 10;

// Reads a whole request in its plainest form from bytes. Whatever is not that plain is for Node's own parser to judge.

import type { IncomingHttpHeaders } from 'node:http';
import { isHost } from '../target.ts';

/** A request that is here with all of its body. */
export interface WireRequest {
  readonly method: 'POST';
  readonly url: string;
  /** As Node's IncomingMessage has them: names in lower case. None is there twice. */
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** `incomplete`: the plain form may still come about. `other`: it cannot. */
export type Reading = WireRequest | 'incomplete' | 'other';

/** Larger ones take Node's way, where reading them has its limits and times. */
export const MAX_WIRE_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 16 * 1024;
const MAX_HEADERS = 64;

const TARGETS = new Map(
  ['/v1/chat/completions', '/v1/completions'].map((target) => [`POST ${target} HTTP/1.1`, target]),
);
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Tabs, and what is beyond ASCII, are allowed in a value; the plain form has neither. */
const HEAD = /^[\x20-\x7e\r\n]+$/;
/** They say how the message is framed or what becomes of its connection. */
const NOT_PLAIN = new Set([
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'keep-alive',
  'proxy-connection',
  'http2-settings',
]);

/**
 * The plain form: one of two request lines; every line ends in CR LF and none is folded; names are tokens and none comes
 * twice; values are printable ASCII; one Host, one Content-Length of digits; nothing about coding, trailers or upgrades;
 * and not a byte after the body.
 */
export function readRequest(bytes: Buffer): Reading {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return bytes.length < MAX_HEAD_BYTES && beginsPlain(bytes) ? 'incomplete' : 'other';
  if (end > MAX_HEAD_BYTES) return 'other';
  const head = bytes.toString('latin1', 0, end);
  if (!HEAD.test(head)) return 'other';
  const lines = head.split('\r\n');
  const url = TARGETS.get(lines[0] as string);
  if (url === undefined || lines.length > MAX_HEADERS) return 'other';
  const headers: Record<string, string> = {};
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i] as string;
    const colon = line.indexOf(':');
    if (colon < 1) return 'other';
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1);
    if (!NAME.test(name) || value.includes('\r') || value.includes('\n')) return 'other';
    const key = name.toLowerCase();
    if (key in headers || NOT_PLAIN.has(key)) return 'other';
    headers[key] = value.trim();
  }
  const { host, connection } = headers;
  if (host === undefined || !isHost(host) || (connection !== undefined && connection.toLowerCase() !== 'keep-alive'))
    return 'other';
  const length = headers['content-length'];
  if (length === undefined || !/^\d{1,6}$/.test(length)) return 'other';
  const total = end + 4 + Number(length);
  if (total > MAX_WIRE_BYTES || bytes.length > total) return 'other';
  return bytes.length < total ? 'incomplete' : { method: 'POST', url, headers, body: bytes.subarray(end + 4) };
}

/** One of the two request lines, as much of it as is here. */
function beginsPlain(bytes: Buffer): boolean {
  for (const line of TARGETS.keys())
    if (line.startsWith(bytes.toString('latin1', 0, Math.min(bytes.length, line.length)))) return true;
  return false;
}

// A client's address, as what is counted by address knows it.
import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6, type Socket } from 'node:net';

/** Some proxies write a port, and an IPv6 address in brackets. */
const WITH_PORT = /^(?:(\d+\.\d+\.\d+\.\d+)|\[([0-9a-fA-F:.]+)\])(?::\d+)?$/;

/**
 * The connection's own address, or the last one in the header that a trusted proxy in front sets: what stands before the
 * last was written by the client. An IPv6 client has a whole /64 to ask from, so that is what counts.
 */
export function addressOf(headers: IncomingHttpHeaders, socket: Socket | null, header: string | null): string {
  const value = header === null ? undefined : headers[header];
  const last = (Array.isArray(value) ? value.join(',') : value)?.split(',').at(-1)?.trim().slice(0, 64);
  const given = last === undefined || last === '' ? (socket?.remoteAddress ?? 'unknown') : last;
  const address = given.replace(WITH_PORT, '$1$2');
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  return isIPv6(address) ? network(address) : address;
}

/** The first four groups. */
function network(address: string): string {
  const [head = '', tail] = address.toLowerCase().split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array<string>(Math.max(0, 8 - before.length - after.length)).fill('0');
  return `${[...before, ...zeros, ...after].slice(0, 4).join(':')}::/64`;
}

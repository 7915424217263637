// A client for tests without a connection: it stays until disconnect() is called.
import { EventEmitter } from 'node:events';
import type { Waiter } from '../../../gateway/threads/offload.ts';

export interface Client extends Waiter {
  disconnect(): void;
}

export function client(owner: string): Client {
  const outgoing = Object.assign(new EventEmitter(), { destroyed: false });
  return {
    owner,
    outgoing,
    disconnect() {
      outgoing.destroyed = true;
      outgoing.emit('close');
    },
  };
}

export const CLIENT = client('anyone');

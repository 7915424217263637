// Whoever asks, in a test that has no connection: somebody who stays until told to leave.
import { EventEmitter } from 'node:events';
import type { Waiter } from '../../gateway/offload/pool.ts';

export interface Client extends Waiter {
  leave(): void;
}

export function client(owner: string): Client {
  const outgoing = Object.assign(new EventEmitter(), { destroyed: false });
  return {
    owner,
    outgoing,
    leave() {
      outgoing.destroyed = true;
      outgoing.emit('close');
    },
  };
}

export const HERE = client('anyone');

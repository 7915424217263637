// Writes a large completion down in turns of the event loop, between which others have theirs.
import { setImmediate } from 'node:timers/promises';
import type { Piece } from '../../proto/fold.ts';

/** What is written in one turn; what a piece costs, however short. */
const TURN_LENGTH = 256 * 1024;
const PIECE_LENGTH = 64;

export async function inTurns(pieces: Iterable<Piece>): Promise<readonly Piece[]> {
  const written: Piece[] = [];
  let length = 0;
  // The first comes while nothing new is read, and belongs to the turn that there is; each after it is a turn.
  await setImmediate();
  for (const piece of pieces) {
    written.push(piece);
    if (typeof piece === 'string') {
      length += piece.length + PIECE_LENGTH;
      if (length < TURN_LENGTH) continue;
    } else {
      // A text that grew chunk by chunk is put together when it is first looked into: here, and not with what follows.
      piece.quote.charCodeAt(0);
    }
    length = 0;
    await setImmediate();
  }
  return written;
}

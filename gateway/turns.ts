// Whose turn it is at what serves few at once, the GPU or a thread: the others wait here, each owner in turn.

export interface Turns {
  /** Calls `start`, now or when a place is free and it is this owner's turn. Returns how to give the place, or the wait, up. */
  enter(owner: string, start: () => void): () => void;
  readonly waiting: number;
}

interface Turn {
  readonly start: () => void;
  state: 'waiting' | 'started' | 'left';
}

export function createTurns(max_in_flight: number): Turns {
  /** Owners in the order of their turns; who was served goes to the end. */
  const lines = new Map<string, Set<Turn>>();
  let started = 0;
  let waiting = 0;

  function begin(turn: Turn): void {
    turn.state = 'started';
    started++;
    turn.start();
  }

  function next(): void {
    if (started >= max_in_flight) return;
    for (const [owner, line] of lines) {
      const [turn] = line;
      if (turn === undefined) return;
      line.delete(turn);
      lines.delete(owner);
      if (line.size > 0) lines.set(owner, line);
      waiting--;
      return begin(turn);
    }
  }

  return {
    get waiting() {
      return waiting;
    },
    enter(owner, start) {
      const turn: Turn = { start, state: 'waiting' };
      if (started < max_in_flight) begin(turn);
      else {
        const line = lines.get(owner) ?? new Set();
        lines.set(owner, line.add(turn));
        waiting++;
      }
      return () => {
        const { state } = turn;
        turn.state = 'left';
        if (state === 'started') {
          started--;
          next();
        } else if (state === 'waiting') {
          const line = lines.get(owner);
          waiting--;
          if (line?.delete(turn) === true && line.size === 0) lines.delete(owner);
        }
      };
    },
  };
}

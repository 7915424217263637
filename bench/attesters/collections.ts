// How long the twin's GPU takes to make a report, in milliseconds.

export const COLLECTIONS_MS = [0, 50, 500] as const;

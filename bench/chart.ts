import type { Saved } from './saved.ts';
export const chart = (_: Saved): string => '';

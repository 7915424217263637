// What was measured, by figure, subject and round; and what it comes to: medians over rounds, ratios within a round.
import type { Figure, Measured } from '../figures/figure.ts';
import { median } from './stats.ts';

export interface FigureResult {
  readonly figure: Figure;
  /** One list for each round. */
  readonly rounds: readonly (readonly Measured[])[];
}

export interface Cell {
  readonly value: number;
  readonly to_nginx: number;
  readonly to_pipe: number;
}

export interface Row {
  readonly name: string;
  readonly cells: Readonly<Record<string, Cell>>;
  /** The first reason for which the row does not count. */
  readonly wrong: string | null;
}

export function summarise({ figure, rounds }: FigureResult, order: readonly string[]): Row[] {
  const names = [...new Set(rounds.flat().map(({ name }) => name))];
  const place = (name: string) => (order.includes(name) ? order.indexOf(name) : order.length);
  names.sort((a, b) => place(a) - place(b));
  return names.map((name) => {
    const cells: Record<string, Cell> = {};
    for (const { key, added = false, ratio = false } of figure.columns) {
      const of = (round: readonly Measured[], subject: string) => valueIn(round, subject, key, added);
      const against = (yardstick: string) =>
        ratio && name !== 'direct'
          ? median(rounds.map((round) => quotient(of(round, name), of(round, yardstick))))
          : Number.NaN;
      cells[key] = {
        value: median(rounds.map((round) => of(round, name))),
        to_nginx: against('nginx'),
        to_pipe: against('pipe'),
      };
    }
    const wrong = rounds.flat().find((row) => row.name === name && row.wrong !== null)?.wrong ?? null;
    return { name, cells, wrong };
  });
}

export function valueIn(round: readonly Measured[], subject: string, key: string, added: boolean): number {
  const value = find(round, subject, key);
  if (!added) return value;
  return subject === 'direct' ? Number.NaN : value - find(round, 'direct', key);
}

function find(round: readonly Measured[], subject: string, key: string): number {
  return round.find(({ name }) => name === subject)?.values[key] ?? Number.NaN;
}

/** A difference of two noisy values can come out below zero; its ratio would say nothing. */
export function quotient(value: number, yardstick: number): number {
  return value > 0 && yardstick > 0 ? value / yardstick : Number.NaN;
}

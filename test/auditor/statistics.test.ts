// The rule's statistics against values of tables and of R.
import { expect, test } from 'vitest';
import {
  binomialTail,
  clopperPearsonUpper,
  leastAlarm,
  normalQuantile,
  normalTail,
  shareFound,
} from '../../auditor/audit/statistics.ts';

test("the binomial's upper tail is exact, far out and on both sides of the mean", () => {
  expect(binomialTail(10, 0.5, 8)).toBeCloseTo(56 / 1024, 14);
  expect(binomialTail(10, 0.5, 2)).toBeCloseTo(1013 / 1024, 14);
  expect(binomialTail(3, 0.001, 3) / 1e-9).toBeCloseTo(1, 10);
  // The complement of no success.
  expect(binomialTail(200, 0.001, 1)).toBeCloseTo(1 - 0.999 ** 200, 13);
  expect(binomialTail(200, 0.001, 2)).toBeCloseTo(1 - 0.999 ** 200 - 200 * 0.001 * 0.999 ** 199, 13);
  expect(binomialTail(100_000, 0.5, 50_000)).toBeCloseTo(0.5012615, 6);
  expect([binomialTail(5, 0.2, 0), binomialTail(5, 0.2, 6), binomialTail(5, 0, 1), binomialTail(5, 1, 5)]).toEqual([
    1, 0, 0, 1,
  ]);
});

test("Clopper and Pearson's upper bound is that of the tables", () => {
  // Without a miss it is 1 - (1 - confidence)^(1/n).
  expect(clopperPearsonUpper(0, 5000, 0.95)).toBeCloseTo(1 - 0.05 ** (1 / 5000), 12);
  expect(clopperPearsonUpper(0, 8706, 0.95)).toBeLessThan(0.0004);
  // qbeta(0.975, 3, 8) and qbeta(0.95, 6, 95)
  expect(clopperPearsonUpper(2, 10, 0.975)).toBeCloseTo(0.5560955, 6);
  expect(clopperPearsonUpper(5, 100, 0.95)).toBeCloseTo(0.1022533, 5);
  expect(clopperPearsonUpper(7, 7, 0.95)).toBe(1);
});

test("the normal distribution's tail and quantiles are those of the tables", () => {
  expect(normalTail(0)).toBe(0.5);
  expect(normalTail(1.959963984540054)).toBeCloseTo(0.025, 14);
  expect(normalTail(-1.959963984540054)).toBeCloseTo(0.975, 14);
  expect(normalTail(6) / 9.865876450376946e-10).toBeCloseTo(1, 10);
  expect(normalTail(2.9999999) / normalTail(3.0000001)).toBeCloseTo(1, 5);
  expect(normalQuantile(0.0025)).toBeCloseTo(2.807033768, 8);
  expect(normalQuantile(0.5)).toBeCloseTo(0, 12);
});

test('the least count that alarms, and the share that it finds', () => {
  // Of 200 tokens at one in a thousand: three come in 0.11 % of cases, two in 1.75 %.
  expect(leastAlarm(200, 0.001, 0.01)).toBe(3);
  expect(binomialTail(200, 0.001, 3)).toBeLessThan(0.01);
  expect(binomialTail(200, 0.001, 2)).toBeGreaterThan(0.01);
  expect(leastAlarm(1, 0.5, 0.01)).toBe(2);
  const share = shareFound(3, 200, 0.9);
  expect(binomialTail(200, share, 3)).toBeCloseTo(0.9, 10);
  expect(shareFound(2, 1, 0.9)).toBe(1);
});

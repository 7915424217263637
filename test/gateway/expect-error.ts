// What every error of the gateway looks like.
import { expect } from 'vitest';
import type { Answer } from '../support/client.ts';

/** OpenAI's shape, always: four members, no more. */
export function expectError(got: Answer, status: number, code: string, param: string | null = null): void {
  expect(got.headers['content-type']).toMatch(/^application\/json/);
  expect([got.status, got.json().error.code, got.json().error.param]).toEqual([status, code, param]);
  expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  expect(typeof got.json().error.message).toBe('string');
  expect(got.headers['x-request-id']).toMatch(/^req-/);
}

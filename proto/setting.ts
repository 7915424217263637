// Numbers from a process's environment, read alike by gateway and sidecar, in decimal digits.
import * as z from 'zod';

/** `Number` alone takes a blank for 0, and hexadecimal digits besides. A default is a number already. */
const read = (form: RegExp) => (value: unknown) => (form.test(String(value)) ? Number(value) : Number.NaN);

const number = (what: string) => z.number({ error: ({ code }) => (code === 'invalid_type' ? what : undefined) });

export const wholeNumber = (min: number, max: number) =>
  z.preprocess(read(/^\d+$/), number('must be a whole number in decimal digits').int().min(min).max(max));

/** Also `.25` and `1e-3`, as others read them who are given the same variable. */
export const fraction = (min: number, max: number) =>
  z.preprocess(
    read(/^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i),
    number('must be a decimal number such as 0.25').min(min).max(max),
  );

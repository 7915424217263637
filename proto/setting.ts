// Numbers from a process's environment, read alike by gateway and sidecar: decimal digits and nothing else.
import * as z from 'zod';

/** `Number` alone takes a blank for 0, and hexadecimal digits and exponents besides. A default is a number already. */
const read = (form: RegExp) => (value: unknown) => (form.test(String(value)) ? Number(value) : Number.NaN);

const number = (what: string) => z.number({ error: ({ code }) => (code === 'invalid_type' ? what : undefined) });

export const wholeNumber = (min: number, max: number) =>
  z.preprocess(read(/^\d+$/), number('must be a whole number in decimal digits').int().min(min).max(max));

export const fraction = (min: number, max: number) =>
  z.preprocess(read(/^\d+(\.\d+)?$/), number('must be a decimal number such as 0.25').min(min).max(max));

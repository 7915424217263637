// The Python of the examples: a virtual environment of their pinned requirements, or null where PyPI cannot be reached.
import { fileURLToPath } from 'node:url';
import { makeVenv } from '../support/venv.ts';

const requirements = fileURLToPath(new URL('../../examples/python/requirements.txt', import.meta.url));

export const python: string | null = makeVenv(requirements, 'examples-venv');
/** For the names of tests that cannot run without it. */
export const SKIPPED: string = python === null ? ' SKIPPED: PyPI cannot be reached' : '';
if (python === null) console.warn('\n!!! The Python examples are SKIPPED: PyPI cannot be reached !!!\n');

// The command line, run many times in one process: `node many.ts` reads a list of argument lists, and writes what each printed and its status.
import { readFileSync } from 'node:fs';
import { formatWithOptions } from 'node:util';

const lists: readonly (readonly string[])[] = JSON.parse(readFileSync(0, 'utf8'));
const [node = '', file = ''] = process.argv;
const done: unknown[] = [];
let ran = { status: 0, stdout: '', stderr: '' };
console.log = (...words) => {
  ran.stdout += `${formatWithOptions({}, ...words)}\n`;
};
console.error = (...words) => {
  ran.stderr += `${formatWithOptions({}, ...words)}\n`;
};
for (const [i, args] of lists.entries()) {
  ran = { status: 0, stdout: '', stderr: '' };
  process.argv = [node, file, ...args];
  // The module runs anew under each name; what it imports does not.
  await import(`../../../auditor/main.ts?${i}`);
  done.push({ ...ran, status: process.exitCode });
}
process.exitCode = 0;
process.stdout.write(JSON.stringify(done));

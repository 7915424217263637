// `npm run make examples`: writes what a gateway answers to the examples of /openapi.json. Signatures and times differ each time.
import { writeFileSync } from 'node:fs';
import { EXAMPLE_FILE } from '../gateway/routes/openapi/examples.ts';
import { askForExamples } from './examples/ask.ts';
import { json } from './vectors/kit.ts';

const examples = await askForExamples();
writeFileSync(EXAMPLE_FILE, json(examples));
const operations = Object.values(examples.answers);
console.log(`examples of ${operations.length} operations: ${operations.flatMap(Object.keys).length} answers`);

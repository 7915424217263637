// `npm run fuzz schema`: schemathesis (PyPI) over the gateway's OpenAPI document, against a real gateway with a scripted backend.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { REQUEST_MEDIA_TYPE } from '../../sealed/index.ts';
import { answer } from '../support/backend.ts';
import { startService } from '../support/harness.ts';
import { makeVenv } from '../support/venv.ts';
import { blameless } from './blameless.ts';

const REQUIREMENTS = fileURLToPath(new URL('requirements.txt', import.meta.url));
/** Examples for each operation and phase; `npm run fuzz schema 1000` for more. */
const EXAMPLES = process.argv[2] ?? '100';
const TIMEOUT_MS = 1_200_000;
/** Sealed requests are bytes of a type that schemathesis does not know. */
const PROGRAM = [
  'import schemathesis, schemathesis.cli',
  `schemathesis.serializer.alias('${REQUEST_MEDIA_TYPE}', 'application/octet-stream')`,
  'schemathesis.cli.schemathesis()',
].join('\n');
const CHECKS = [
  'not_a_server_error',
  'status_code_conformance',
  'content_type_conformance',
  'response_schema_conformance',
  'unsupported_method',
  'allow_header_conformance',
];

const python = makeVenv(REQUIREMENTS, 'schemathesis-venvs');
if (python === null) {
  console.error('fuzz:schema SKIPPED: PyPI cannot be reached, so schemathesis is not here');
  process.exit(0);
}
const service = await startService({ MAX_BODY_BYTES: '1048576' });
/** What the backend has by another method than POST. */
const METHODS: readonly (readonly [string, string])[] = [['/v1/models', 'GET']];
service.backend.script = (request, response) => {
  const own = request.url.split('?', 1)[0]?.endsWith('/attestation') ? 'GET' : 'POST';
  const allow = METHODS.find(([path]) => request.url.startsWith(path))?.[1] ?? own;
  const other = allow !== request.method;
  return (other ? answer('{"detail":"Method Not Allowed"}', 405, { allow }) : blameless(false))(request, response);
};
const document = join(service.folder.path, 'openapi.json');
writeFileSync(document, await (await fetch(`${service.gateway.url}/openapi.json`)).text());
const run = spawn(
  python,
  [
    ...['-c', PROGRAM],
    ...['run', document, '--url', service.gateway.url, '--checks', CHECKS.join(','), '--max-examples', EXAMPLES],
    ...['--request-timeout', '10', '--continue-on-failure', '--warnings', 'off', '--no-color'],
  ],
  { cwd: service.folder.path, stdio: 'inherit', timeout: TIMEOUT_MS },
);
const code = await new Promise<number>((resolve) => run.once('exit', (status) => resolve(status ?? 1)));
console.log(code === 0 ? 'fuzz:schema: no fault found' : `fuzz:schema: schemathesis ended with ${code}`);
await service.close();
process.exit(code);

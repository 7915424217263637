// docs/configuration.md: every variable of every process, from the schemas that validate them.
import { DEMO_DEFAULTS } from '../../demo/config.ts';
import { schema as engine } from '../../demo/engine/config.ts';
import { schema as gateway } from '../../gateway/config.ts';
import { schema as sidecar } from '../../sidecar/config.ts';
import { variableTable } from './variables.ts';

const isOtel = (name: string) => name.startsWith('OTEL_');

export function configuration(): string {
  const demo = Object.entries(DEMO_DEFAULTS).map(([name, value]) => `\`${name}=${value}\``);
  return `# Configuration

<!-- Made by \`npm run make docs\` from the schemas in gateway/config.ts and in the config.ts of the others: change it there. -->

Each process reads its settings from the environment when it starts. A wrong one stops the start with one line that names it; an empty
one counts as unset. Numbers are decimal digits, times in milliseconds and sizes in bytes, as the names say.

## Gateway

${variableTable(gateway, (name) => !isOtel(name))}

### Tracing

Off unless an endpoint is set. OpenTelemetry's own variables, as far as the gateway has them; \`OTEL_EXPORTER_OTLP_TIMEOUT\`,
\`…_COMPRESSION\`, \`…_CERTIFICATE\`, \`…_CLIENT_KEY\`, \`…_CLIENT_CERTIFICATE\` and their \`…_TRACES_…\` forms are read by its exporter.

${variableTable(gateway, isOtel)}

## Sidecar

A name before a colon says which attester reads the variable.

${variableTable(sidecar)}

The attesters that start a process of NVIDIA's hand it an allow-list of the environment: where programs, libraries and certificates lie,
the way to the network (\`https_proxy\` and its like), which GPUs there are, and \`NVIDIA_ATTESTATION_SERVICE_KEY\`.

## Launcher

\`npm start\` takes the variables of both processes and hands them on, with defaults of its own: ${demo.join(', ')}.
\`PORT=0\` is not for it. With \`BACKEND_URL\` or \`BACKENDS_FILE\` set it starts no demo engine. When it is stopped, running answers have the gateway's
\`DRAIN_MS\` to end; a second Ctrl-C ends everything at once.

## Demo engine

The launcher sets \`HOST\` and \`PORT\` itself. Started alone (\`node demo/engine/main.ts\`):

${variableTable(engine)}
`;
}

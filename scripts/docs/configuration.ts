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

Each process reads its settings from the environment when it starts. A wrong one stops the start with one line that names it.
An empty one counts as unset. Numbers are decimal digits; names say the unit: \`_MS\` milliseconds, \`_BYTES\` bytes.
What a client gets past a limit: [limits](operate.md#limits).

## Gateway

${variableTable(gateway, (name) => !isOtel(name))}

### Tracing

Off unless an endpoint is set. These are OpenTelemetry's own variables. Its exporter also reads \`OTEL_EXPORTER_OTLP_TIMEOUT\`,
\`…_COMPRESSION\`, \`…_CERTIFICATE\`, \`…_CLIENT_KEY\`, \`…_CLIENT_CERTIFICATE\` and their \`…_TRACES_…\` forms.

${variableTable(gateway, isOtel)}

## Sidecar

A name before a colon says which attester reads the variable.

${variableTable(sidecar)}

NVIDIA's programs get an allow-list of the environment: paths of programs, libraries and certificates, proxies (\`https_proxy\` and
its like), which GPUs there are, and \`NVIDIA_ATTESTATION_SERVICE_KEY\`.

## Launcher

\`npm start\` hands the variables of both processes on, with defaults of its own: ${demo.join(', ')}.
It takes no \`PORT=0\`. With \`BACKEND_URL\` or \`BACKENDS_FILE\` set it starts no demo engine. Ctrl-C gives running answers the gateway's
\`DRAIN_MS\` to end; a second one ends everything at once.

## Demo engine

The launcher sets \`HOST\` and \`PORT\` itself. Started alone (\`node demo/engine/main.ts\`):

${variableTable(engine)}
`;
}

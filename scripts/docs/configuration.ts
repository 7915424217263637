// docs/configuration.md: every variable of every process, from the schemas that validate them.
import { DEMO_DEFAULTS, SIMULATED_DEFAULTS } from '../../demo/config.ts';
import { schema as engine } from '../../demo/engine/config.ts';
import { schema as gateway } from '../../gateway/base/config.ts';
import { schema as sidecar } from '../../sidecar/common/config.ts';
import { namesAndDefaults, variableTable } from './variables.ts';

const isOtel = (name: string) => name.startsWith('OTEL_');

export function configuration(): string {
  const demo = Object.entries({ ...DEMO_DEFAULTS, ...SIMULATED_DEFAULTS }).map(
    ([name, value]) => `\`${name}=${value}\``,
  );
  return `# Configuration

<!-- Made by \`npm run make docs\` from the schemas in gateway/base/config.ts and in the config.ts of the others: change it there. -->

Each process reads its settings from the environment when it starts. A wrong setting stops the process with one line that names it.
An empty one counts as unset. Names say the unit: \`_MS\` milliseconds, \`_BYTES\` bytes.
What a client gets past a limit: [limits](operate.md#limits).

\`MAX_…_PER_KEY\`: 0 means no limit; a key's own setting overrides it. Without a default it is half of the service's limit; without API keys there is no limit.

## Gateway

${variableTable(gateway, (name) => !isOtel(name))}

### Tracing

Off unless an endpoint is set. OpenTelemetry's own variables, with their defaults here: ${namesAndDefaults(gateway, isOtel)}.
Spans go out over HTTP as JSON. The exporter also reads \`OTEL_EXPORTER_OTLP_TIMEOUT\`, \`…_COMPRESSION\`, \`…_CERTIFICATE\`, \`…_CLIENT_KEY\`,
\`…_CLIENT_CERTIFICATE\` and their \`…_TRACES_…\` forms.

## Sidecar

A name before a colon says which attester reads the variable.

${variableTable(sidecar)}

NVIDIA's programs get only such variables as \`PATH\`, \`https_proxy\` and \`NVIDIA_ATTESTATION_SERVICE_KEY\`.

## Launcher

\`npm start\` hands the variables of both processes on, with defaults of its own: ${demo.join(', ')}.
With \`BACKEND_URL\` or \`BACKENDS_FILE\` set it starts no demo engine. Ctrl-C gives running answers the gateway's
\`DRAIN_MS\` to end.

## Demo engine

The launcher sets \`HOST\` and \`PORT\` itself. Started by itself, \`node demo/engine/main.ts\` reads ${namesAndDefaults(engine)}.
`;
}

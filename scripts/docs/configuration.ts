// docs/configuration.md: every variable of every process, from the schemas that validate them.
import { DEMO_DEFAULTS, SIMULATED_DEFAULTS } from '../../demo/config.ts';
import { schema as engine } from '../../demo/engine/config.ts';
import { TWIN_OPTIONS } from '../../demo/twin/options.ts';
import { schema as gateway } from '../../gateway/base/config.ts';
import { schema as sidecar } from '../../sidecar/common/config.ts';
import { namesAndDefaults, variableTable } from './variables.ts';

export function configuration(): string {
  const demo = Object.entries({ ...DEMO_DEFAULTS, ...SIMULATED_DEFAULTS }).map(
    ([name, value]) => `\`${name}=${value}\``,
  );
  const twin = Object.entries(TWIN_OPTIONS).map(([name, option]) => `\`--${name}\` (\`${option.default}\`)`);
  return `# Configuration

<!-- Made by \`npm run make docs\` from the schemas in gateway/base/config.ts and in the config.ts of the others: change it there. -->

Each process reads its settings from the environment when it starts. A wrong setting stops the process with one line that names it.
An empty one counts as unset. Names say the unit: \`_MS\` milliseconds, \`_BYTES\` bytes.
What no setting changes, the limits of API keys, and what a client gets past a limit: [limits](operate.md#limits).

## Gateway

${variableTable(gateway)}

### Tracing

Off unless \`OTEL_EXPORTER_OTLP_ENDPOINT\` or \`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT\` is set. Spans go out over HTTP as JSON; \`grpc\` is refused.
[OpenTelemetry's variables](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) apply, such as
\`OTEL_SERVICE_NAME\` (\`countersign-gateway\`), \`OTEL_RESOURCE_ATTRIBUTES\`, \`OTEL_TRACES_SAMPLER\`, \`OTEL_TRACES_SAMPLER_ARG\`,
\`OTEL_TRACES_EXPORTER\`, \`OTEL_SDK_DISABLED\`, \`OTEL_EXPORTER_OTLP_HEADERS\`, \`OTEL_EXPORTER_OTLP_PROTOCOL\`,
\`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL\`, \`OTEL_BSP_SCHEDULE_DELAY\`, \`OTEL_BSP_MAX_QUEUE_SIZE\`, \`OTEL_BSP_MAX_EXPORT_BATCH_SIZE\`.

## Sidecar

A name before a colon says which attester reads the variable.

${variableTable(sidecar)}

NVIDIA's programs get only such variables as \`PATH\` and \`https_proxy\`, and the service key.

## Launcher

\`npm start\` hands the variables of both processes on, with defaults of its own: ${demo.join(', ')}.
With \`BACKEND_URL\` or \`BACKENDS_FILE\` set it starts no demo engine. Options say what the simulated machine pretends to be:
${twin.join(', ')}; \`node demo/twin/main.ts\` takes the same. Ctrl-C gives running answers the gateway's
\`DRAIN_MS\` to end.

## Demo engine

The launcher sets \`HOST\` and \`PORT\` itself. Started by itself, \`node demo/engine/main.ts\` reads ${namesAndDefaults(engine)}.
`;
}

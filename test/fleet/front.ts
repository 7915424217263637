// What stands in front of the pods: the endpoint picker with the rights and the configuration that the chart gives it, and an Envoy that asks
// it for each request, as a Gateway with an InferencePool does.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { eventually, freePort, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startCommand } from '../support/process.ts';

export interface Front {
  /** Envoy's. */
  readonly url: string;
  /** What the picker and Envoy have said. */
  output(): string;
  close(): Promise<void>;
}

interface FrontOptions {
  readonly programs: { readonly picker: string; readonly envoy: string };
  readonly kubeconfig: string;
  /** The picker's, as in its pod: ports and files are other ones here. */
  readonly args: readonly string[];
  readonly config: string;
}

export async function startFront({ programs, kubeconfig, args, config }: FrontOptions): Promise<Front> {
  const folder = temporaryFolder();
  const [grpc, health, metrics, port, admin] = await Promise.all([1, 2, 3, 4, 5].map(freePort));
  const file = join(folder.path, 'picker.yaml');
  writeFileSync(file, config);
  const here: Record<string, unknown> = {
    'config-file': file,
    'grpc-port': grpc,
    'grpc-health-port': health,
    'metrics-port': metrics,
  };
  const changed = args.map((arg) => {
    const name = /^--([\w-]+)=/.exec(arg)?.[1] ?? '';
    return name in here ? `--${name}=${here[name]}` : arg;
  });
  const picker = startCommand(programs.picker, changed, { KUBECONFIG: kubeconfig });
  const envoyFile = join(folder.path, 'envoy.yaml');
  writeFileSync(envoyFile, stringify(envoyConfig({ port: port ?? 0, grpc: grpc ?? 0, admin: admin ?? 0 })));
  const envoy = startCommand(programs.envoy, [
    '--config-path',
    envoyFile,
    '--concurrency',
    '1',
    '--disable-hot-restart',
    '--log-level',
    'warning',
  ]);
  const output = () => `${picker.output().slice(-8_000)}\n${envoy.output().slice(-4_000)}`;
  const running = (one: RunningProcess) => one.child.exitCode === null;
  const close = async () => {
    await Promise.all([picker, envoy].filter(running).map((one) => one.kill('SIGKILL')));
    folder.remove();
  };
  try {
    await eventually(async () => {
      if (!running(picker) || !running(envoy)) throw new Error(`the picker or Envoy ended: ${output()}`);
      return (await fetch(`http://127.0.0.1:${admin}/ready`).catch(() => null))?.ok === true;
    }, 60_000);
  } catch (error) {
    await close();
    throw error;
  }
  return { url: `http://127.0.0.1:${port}`, output, close };
}

const TYPES = 'type.googleapis.com/envoy.extensions';
const typed = (type: string, rest: object) => ({ '@type': `${TYPES}.${type}`, ...rest });
const at = (port: number) => ({ socket_address: { address: '127.0.0.1', port_value: port } });

/** The endpoint picker protocol: bodies go through the picker, which names the pod in a header that the cluster follows. */
function envoyConfig({ port, grpc, admin }: { port: number; grpc: number; admin: number }): object {
  const processor = typed('filters.http.ext_proc.v3.ExternalProcessor', {
    grpc_service: { envoy_grpc: { cluster_name: 'picker', authority: 'picker' }, timeout: '10s' },
    processing_mode: {
      request_header_mode: 'SEND',
      response_header_mode: 'SEND',
      request_body_mode: 'FULL_DUPLEX_STREAMED',
      response_body_mode: 'FULL_DUPLEX_STREAMED',
      request_trailer_mode: 'SEND',
      response_trailer_mode: 'SEND',
    },
    message_timeout: '60s',
  });
  const connections = typed('filters.network.http_connection_manager.v3.HttpConnectionManager', {
    stat_prefix: 'fleet',
    route_config: {
      virtual_hosts: [
        {
          name: 'pool',
          domains: ['*'],
          routes: [{ match: { prefix: '/' }, route: { cluster: 'pods', timeout: '0s', idle_timeout: '120s' } }],
        },
      ],
    },
    http_filters: [
      { name: 'envoy.filters.http.ext_proc', typed_config: processor },
      { name: 'envoy.filters.http.router', typed_config: typed('filters.http.router.v3.Router', {}) },
    ],
  });
  const http2 = typed('upstreams.http.v3.HttpProtocolOptions', {
    explicit_http_config: { http2_protocol_options: {} },
  });
  return {
    admin: { address: at(admin) },
    static_resources: {
      listeners: [
        {
          name: 'clients',
          address: at(port),
          filter_chains: [
            { filters: [{ name: 'envoy.filters.network.http_connection_manager', typed_config: connections }] },
          ],
        },
      ],
      clusters: [
        {
          name: 'pods',
          type: 'ORIGINAL_DST',
          connect_timeout: '2s',
          lb_policy: 'CLUSTER_PROVIDED',
          original_dst_lb_config: { use_http_header: true, http_header_name: 'x-gateway-destination-endpoint' },
        },
        {
          name: 'picker',
          type: 'STATIC',
          connect_timeout: '2s',
          typed_extension_protocol_options: { 'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': http2 },
          // The picker's certificate is its own, made at its start.
          transport_socket: {
            name: 'envoy.transport_sockets.tls',
            typed_config: typed('transport_sockets.tls.v3.UpstreamTlsContext', { common_tls_context: {} }),
          },
          load_assignment: {
            cluster_name: 'picker',
            endpoints: [{ lb_endpoints: [{ endpoint: { address: at(grpc) } }] }],
          },
        },
      ],
    },
  };
}

// What the service is now: asked again every few seconds while somebody looks, so that the page says so when a part goes or comes back.
import { GatewayError, getService, type Service } from './base/gateway.ts';
import { cannotVerify, type Settings } from './proof/verifier.ts';

const INTERVAL_MS = 5_000;

export interface Status {
  readonly kind: 'ready' | 'trouble' | 'away';
  readonly text: string;
}

interface Live {
  /** As it was last said; null while the gateway is away. */
  readonly service: Service | null;
  settings(collateral: boolean): Settings;
  /** Asks now. @throws {DOMException} when it was aborted. */
  refresh(init?: RequestInit): Promise<void>;
}

/** @param onChange is told of every state that came, the first included. */
export function createLive(onChange: (status: Status, service: Service | null) => void): Live {
  let service: Service | null = null;
  const roots = new Set<string>();

  async function refresh(init: RequestInit = {}): Promise<void> {
    try {
      service = await getService(init);
      // Proofs of a sidecar that has gone can still be checked.
      if (service.simulated_root !== null) roots.add(service.simulated_root);
      onChange(statusOf(service), service);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      service = null;
      onChange({ kind: 'away', text: error.message }, null);
    }
  }
  setInterval(() => {
    if (!document.hidden) void refresh();
  }, INTERVAL_MS);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void refresh();
  });
  return {
    get service() {
      return service;
    },
    settings: (collateral) => ({ service, simulatedRoots: [...roots].join('\n'), collateral }),
    refresh,
  };
}

function statusOf({ sidecar, backend }: Service): Status {
  const reason = cannotVerify();
  if (reason !== null) return { kind: 'trouble', text: `${reason}.` };
  if (sidecar.trouble !== null) return { kind: 'trouble', text: `No proofs: ${sidecar.trouble.message}` };
  if (sidecar.status !== 'connected')
    return { kind: 'trouble', text: 'No proofs now: the part that speaks to the GPU is away' };
  if (backend.status === 'down') return { kind: 'trouble', text: 'No answers now: the model does not respond' };
  if (backend.canary.state === 'wrong')
    return { kind: 'trouble', text: 'The model answers with nonsense what it should know' };
  const device = sidecar.devices[0]?.model ?? 'GPU';
  const several = sidecar.devices.length > 1 ? `${sidecar.devices.length} × ` : '';
  return { kind: 'ready', text: `Ready: ${several}${device}` };
}

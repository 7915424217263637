// The set-up that most tests of the gateway share: one service for all tests of a file.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { chatAnswer, type Script } from './backend.ts';
import { type GatewaySettings, type Service, startService } from './harness.ts';
import { expectServing } from './refusals.ts';

/** Of a service that runs while the tests of a file do. `url` is the gateway's. */
export type SharedService = Omit<Service, 'close'> & { readonly url: string };

/**
 * Starts a service before the tests of a file and closes it after them. Before each test the backend has its script again and
 * nothing in `seen`. After each test the gateway must serve a new connection, whatever the test had it refuse.
 */
export function useService(
  settings: GatewaySettings = {},
  sidecarOptions: Parameters<typeof startService>[1] = {},
  script: Script = chatAnswer('Hello.'),
): SharedService {
  let service: Service;
  beforeAll(async () => {
    service = await startService(settings, sidecarOptions);
  });
  beforeEach(() => {
    service.backend.script = script;
    service.backend.seen.length = 0;
  });
  afterEach(() => expectServing(service.gateway.url));
  afterAll(() => service.close());
  return {
    get folder() {
      return service.folder;
    },
    get backend() {
      return service.backend;
    },
    get sidecar() {
      return service.sidecar;
    },
    get gateway() {
      return service.gateway;
    },
    get url() {
      return service.gateway.url;
    },
  };
}

// What the tests of limits stand on: a service whose callers have keys, and a backend that holds its answers until told.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chatAnswer, DONE, delta, finish, role, type Script } from '../../support/backend.ts';
import { type GatewaySettings, type Service, startGateway, startService } from '../../support/harness.ts';

export interface Stage {
  readonly service: Service;
  /**
   * Another gateway on the same sidecar and backend. `keys` are lines of a keys file, each `NAME settings`: the key is `key-NAME`; or
   * `* settings`.
   */
  gateway(settings: GatewaySettings, keys?: readonly string[]): Promise<string>;
  close(): Promise<void>;
}

export const bearer = (name: string) => ({ authorization: `Bearer key-${name}` });

export async function startStage(sidecarOptions: Parameters<typeof startService>[1] = {}): Promise<Stage> {
  const service = await startService({}, sidecarOptions);
  const closing: (() => Promise<void>)[] = [];
  return {
    service,
    async gateway(settings, keys) {
      const file = join(service.folder.path, `keys-${closing.length}`);
      if (keys !== undefined) writeFileSync(file, keys.map(keyLine).join('\n'));
      const gateway = await startGateway({
        BACKEND_URL: service.backend.url,
        SIDECAR_SOCKET: service.sidecar.socket,
        ...(keys === undefined ? {} : { API_KEYS_FILE: file }),
        ...settings,
      });
      closing.push(() => gateway.close());
      return gateway.url;
    },
    async close() {
      for (const close of closing) await close();
      await service.close();
    },
  };
}

/** A line of a keys file: of the key `key-NAME`, or the line `*`. */
export function keyLine(key: string): string {
  if (key.startsWith('* ')) return key;
  const [name, ...settings] = key.split(' ');
  return [`${name}:sha256:${createHash('sha256').update(`key-${name}`).digest('hex')}`, ...settings].join(' ');
}

export interface Held {
  /** Requests that came. */
  readonly count: number;
  /** Lets every answer go, those to come included. */
  release(): void;
}

/** The backend answers when told: whole or, where it was asked to, as a stream that has begun. */
export function holdResponses(service: Service): Held {
  const waiting: (() => void)[] = [];
  let released = false;
  let count = 0;
  const script: Script = (request, response) => {
    count++;
    const stream = /"stream":true/.test(request.body);
    if (stream) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('Hello'));
    }
    const respond = () => (stream ? response.end(finish() + DONE) : void chatAnswer('Hello.')(request, response));
    if (released) respond();
    else waiting.push(respond);
  };
  service.backend.script = script;
  return {
    get count() {
      return count;
    },
    release() {
      released = true;
      for (const respond of waiting.splice(0)) respond();
    },
  };
}

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { answer, chatAnswer, chatStream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { useService } from '../support/service.ts';
import buildPrometheus, { PROMTOOL } from './setup.ts';

beforeAll(buildPrometheus);

const service = useService();

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

function promtool(args: string[], input = '') {
  const { status, stdout, stderr } = spawnSync(PROMTOOL, args, { input, encoding: 'utf8' });
  return { status, said: `${stdout}${stderr}` };
}

describe('promtool', () => {
  it('reads the metrics of a service at work, and finds nothing to say', async () => {
    const { url } = service.gateway;
    await chat(url, { ...CHAT, tee: true });
    service.backend.script = chatStream(['a', 'b']);
    await chat(url, { ...CHAT, stream: true, tee: true, model: 'a "model" with\nodd \\ letters' });
    service.backend.script = answer('{}', 429);
    await chat(url, CHAT);
    service.backend.script = chatAnswer('x');
    await chat(url, '{');
    const { text } = await ask(`${url}/metrics`, { method: 'GET' });
    expect(promtool(['check', 'metrics'], text)).toEqual({ status: 0, said: '' });
    expect(promtool(['check', 'metrics'], `${text}\nbroken{`).status).not.toBe(0);
  });

  it('reads the alert rules', () => {
    expect(promtool(['check', 'rules', at('../../docs/alerts.yaml')])).toMatchObject({ status: 0 });
  });

  it('sees the alerts go off when they should, and stay silent when they should', () => {
    const { status, said } = promtool(['test', 'rules', at('alerts.yaml')]);
    expect(said).toContain('SUCCESS');
    expect(status).toBe(0);
  });
});

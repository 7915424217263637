// However gateway and sidecar are started, Node is started with the same flags.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { NODE_FLAGS as GATEWAY_FLAGS } from '../../gateway/node-flags.ts';
import { NODE_FLAGS as SIDECAR_FLAGS } from '../../sidecar/common/config.ts';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

describe.each([
  ['gateway', GATEWAY_FLAGS],
  ['sidecar', SIDECAR_FLAGS],
])('the flags of Node for the %s', (room, flags) => {
  it('are those of its npm script, the image and the systemd unit', () => {
    const line = flags.join(' ');
    const main = `${room}/main.ts`;
    expect(JSON.parse(read('package.json')).scripts[room]).toContain(` node ${line} ${main}`);
    expect(read('Dockerfile')).toContain(`CMD ${JSON.stringify(['node', ...flags, main]).replaceAll(',', ', ')}`);
    // What is compiled into the image serves only a process with the same flags.
    expect(read('Dockerfile')).toContain(` node ${line} ${main};`);
    expect(read(`deploy/systemd/countersign-${room}.service`)).toMatch(
      new RegExp(`^ExecStart=/usr/bin/node ${line} /opt/countersign/${main}$`, 'm'),
    );
  });
});

// However the gateway is started, Node is started with the same flags, and the sidecar with its own.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { NODE_FLAGS } from '../../gateway/base/config.ts';
import { NODE_FLAGS as SIDECAR_FLAGS } from '../../sidecar/common/config.ts';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

describe.each([
  ['gateway', NODE_FLAGS],
  ['sidecar', SIDECAR_FLAGS],
])('the flags of Node for the %s', (room, flags) => {
  it('are those of its npm script, the image and the systemd unit', () => {
    const main = `${room}/main.ts`;
    const line = [...flags, main].join(' ');
    expect(JSON.parse(read('package.json')).scripts[room]).toContain(` node ${line}`);
    expect(read('Dockerfile')).toContain(`CMD ${JSON.stringify(['node', ...flags, main]).replaceAll(',', ', ')}`);
    // What is compiled into the image serves only a process with the same flags.
    expect(read('Dockerfile')).toContain(` node ${line};`);
    const unit = line.replace(main, `/opt/countersign/${main}`);
    expect(read(`deploy/systemd/countersign-${room}.service`)).toContain(`\nExecStart=/usr/bin/node ${unit}\n`);
  });
});

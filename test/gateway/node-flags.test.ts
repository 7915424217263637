// However the gateway is started, Node is started with the same flags.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { NODE_FLAGS } from '../../gateway/node-flags.ts';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

describe('the flags of Node', () => {
  it('are those of npm run gateway, the image and the systemd unit', () => {
    const line = NODE_FLAGS.join(' ');
    expect(JSON.parse(read('package.json')).scripts.gateway).toContain(` node ${line} gateway/main.ts`);
    expect(read('Dockerfile')).toContain(
      `CMD ${JSON.stringify(['node', ...NODE_FLAGS, 'gateway/main.ts']).replaceAll(',', ', ')}`,
    );
    // What is compiled into the image serves only a process with the same flags.
    expect(read('Dockerfile')).toContain(`    node ${line} gateway/main.ts;`);
    expect(read('deploy/systemd/countersign-gateway.service')).toMatch(
      new RegExp(`^ExecStart=/usr/bin/node ${line} /opt/countersign/gateway/main.ts$`, 'm'),
    );
  });
});

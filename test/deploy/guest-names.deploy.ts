// Names that the guest's gateway asks for: with the options that deploy/cvm gives dockerd, no name of a container reaches the network's DNS.
import { spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { attempt } from '../containers/command.ts';
import { docker, startDaemon } from '../containers/daemon.ts';

const CVM = fileURLToPath(new URL('../../deploy/cvm/', import.meta.url));
const [STARTED = ''] = readFileSync(join(CVM, 'docker.conf'), 'utf8').match(/^ExecStart=\/.*$/m) ?? [];
const OPTIONS = STARTED.match(/--dns-[a-z]+ [^ ]+/g)?.flatMap((option) => option.split(' ')) ?? [];
const EVIL = '192.0.2.66';
const BUSYBOX = '/usr/bin/busybox';
const has = (program: string) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;
const why = process.getuid?.() !== 0 || ![docker, '/usr/sbin/dockerd', BUSYBOX].every(has);
if (why) console.warn('SKIPPED: names in the guest: this needs root, dockerd and busybox-static');

/** The network's DNS is the host's, which says that every name is its own machine. */
async function evilDns(address: string) {
  const asked: string[] = [];
  const socket = createSocket('udp4').on('message', (query, { port, address: from }) => {
    let end = 12;
    const labels: string[] = [];
    for (; query[end]; end += 1 + (query[end] ?? 0))
      labels.push(query.toString('latin1', end + 1, end + 1 + (query[end] ?? 0)));
    asked.push(labels.join('.'));
    const isA = query.readUInt16BE(end + 1) === 1;
    const head = Buffer.from([query[0] ?? 0, query[1] ?? 0, 0x81, 0x80, 0, 1, 0, isA ? 1 : 0, 0, 0, 0, 0]);
    const answer = isA ? [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 66] : [];
    socket.send(Buffer.concat([head, query.subarray(12, end + 5), Buffer.from(answer)]), port, from);
  });
  socket.bind(53, address);
  await once(socket, 'listening');
  return { asked, close: () => socket.close() };
}

/** The addresses that a gateway finds while its backend is up and while it is down, and for a name outside; and what the DNS was asked. */
async function found(subnet: string, options: readonly string[]) {
  const folder = mkdtempSync('/tmp/csn-');
  const daemon = await startDaemon(folder, null, ['--dns', `${subnet}.1`, ...options]);
  const run = (...args: string[]) => attempt(docker, args, { env: { DOCKER_HOST: daemon.host }, timeout_ms: 20_000 });
  const address = async (name: string) => {
    const { stdout } = await run('exec', 'gateway', '/busybox', 'ping', '-c1', '-W1', name);
    return /PING \S+ \((\S+)\)/.exec(stdout)?.[1] ?? null;
  };
  let dns: Awaited<ReturnType<typeof evilDns>> | null = null;
  try {
    const root = join(folder, 'root');
    mkdirSync(root);
    copyFileSync(BUSYBOX, join(root, 'busybox'));
    await attempt('tar', ['-cf', `${root}.tar`, '-C', root, '.']);
    await run('import', `${root}.tar`, 'one');
    await run('network', 'create', '--internal', 'inside');
    await run('network', 'create', '--subnet', `${subnet}.0/24`, 'outside');
    const program = ['one', '/busybox', 'sleep', '60'];
    await run('run', '-d', '--name', 'backend', '--net', 'inside', ...program);
    await run('create', '--name', 'gateway', '--net', 'outside', ...program);
    await run('network', 'connect', 'inside', 'gateway');
    expect(await run('start', 'gateway')).toMatchObject({ code: 0 });
    dns = await evilDns(`${subnet}.1`);
    const up = await address('backend');
    await run('kill', 'backend');
    const [down, outside] = [await address('backend'), await address('rim.example')];
    return { isUp: up !== null && up !== EVIL, down, outside, asked: [...new Set(dns.asked)] };
  } finally {
    dns?.close();
    await run('rm', '-f', 'gateway', 'backend');
    await run('network', 'rm', 'inside', 'outside');
    await daemon.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

test.skipIf(why)('a name of a container that is down is asked of nobody', async () => {
  expect(OPTIONS).not.toEqual([]);
  expect(await found('172.31.241', OPTIONS)).toEqual({
    isUp: true,
    down: null,
    outside: EVIL,
    asked: ['rim.example'],
  });
});

test.skipIf(why)('without those options the host says where the backend is', async () => {
  expect(await found('172.31.242', [])).toMatchObject({ isUp: true, down: EVIL, outside: EVIL });
});

test('Compose gives variables without a value none in the guest', () => {
  expect(readFileSync(join(CVM, 'countersign.service'), 'utf8')).toMatch(/^Environment=COMPOSE_DISABLE_ENV_FILE=1$/m);
});

import { createServer } from 'node:net';
import { describe, expect, inject, it } from 'vitest';
import { type Made, PROJECT, stageOf } from './stage.ts';

const made = inject('containers');
const SERVICES = { 'demo-gateway': 10002, 'demo-sidecar': 10001, 'demo-backend': 10003 } as const;
const SOCKET = '/run/countersign/sidecar.sock';
/** Prints `connected` or the error's code. */
const connectTo = (where: string) =>
  `const s=require('net').connect({${where},timeout:3000},()=>{console.log('connected');process.exit()});` +
  `s.on('error',e=>{console.log(e.code);process.exit()});s.on('timeout',()=>{console.log('timeout');process.exit()})`;
/** Prints `written` or the error's code. */
const writeTo = (path: string) =>
  `try{require('fs').writeFileSync(${JSON.stringify(path)},'x');console.log('written')}catch(e){console.log(e.code)}`;

describe.skipIf('missing' in made)('every container, from inside', () => {
  const stage = stageOf(made as Made);

  describe.each(Object.entries(SERVICES))('%s', (service, uid) => {
    const say = async (script: string) => (await stage.inside(service, script)).stdout.trim();

    it('runs as a user of its own, without a capability, and cannot gain one', async () => {
      const status = await say(`console.log(require('fs').readFileSync('/proc/1/status','utf8'))`);
      const value = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)?.[1]?.split(/\s+/);
      expect(value('Uid')).toEqual(Array(4).fill(String(uid)));
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
        expect(value(set)).toEqual(['0000000000000000']);
      expect(value('NoNewPrivs')).toEqual(['1']);
      expect(value('Seccomp')).toEqual(['2']);
    });

    it('writes nowhere but in /tmp, and the gateway in the folder of its audit log', async () => {
      for (const path of ['/x', '/app/x', '/app/package.json', '/etc/x', '/usr/local/bin/node', '/var/tmp/x', '/dev/x'])
        expect([path, await say(writeTo(path))]).toEqual([path, expect.stringMatching(/^(EROFS|EACCES)$/)]);
      expect(await say(writeTo('/tmp/x'))).toBe('written');
      // Of the gateway's audit log.
      const log = await say(writeTo('/var/log/countersign/x'));
      expect(log).toMatch(service === 'demo-gateway' ? /^written$/ : /^(ENOENT|EROFS)$/);
    });

    it('could not change its code even on a root that is not read-only', async () => {
      const open = await say(
        `const fs=require('fs');for(const f of fs.readdirSync('/app',{recursive:true})){const s=fs.lstatSync('/app/'+f);` +
          `if(!s.isSymbolicLink()&&(s.uid!==0||s.mode&0o022))console.log(f)}`,
      );
      expect(open).toBe('');
    });

    it('holds no package manager, no compiler and no dev dependency', async () => {
      const found = await say(
        `const fs=require('fs');for(const d of process.env.PATH.split(':'))for(const n of` +
          `['npm','npx','yarn','corepack','pip','pip3','gcc','cc','c++','make','ld','as','curl','wget'])` +
          `if(fs.existsSync(d+'/'+n))console.log(d+'/'+n);` +
          `const {devDependencies}=JSON.parse(fs.readFileSync('/app/package.json'));` +
          `for(const n of Object.keys(devDependencies))if(fs.existsSync('/app/node_modules/'+n))console.log(n)`,
      );
      expect(found).toBe('');
    });

    it('dumps no core, which would hold what was said', async () => {
      const limits = await say(`console.log(require('fs').readFileSync('/proc/self/limits','utf8'))`);
      expect(/^Max core file size\s+(\S+)\s+(\S+)/m.exec(limits)?.slice(1)).toEqual(['0', '0']);
    });

    it('is bounded in processes and memory, has an init, and is not privileged', async () => {
      const { HostConfig: host, Mounts: mounts } = JSON.parse(
        await stage.docker('inspect', stage.container(service)),
      )[0];
      expect(host).toMatchObject({ Privileged: false, ReadonlyRootfs: true, Init: true, CapDrop: ['ALL'] });
      expect(host.PidsLimit).toBeGreaterThan(0);
      expect(host.Memory).toBeGreaterThan(0);
      expect([host.PidMode, host.NetworkMode === 'host']).toEqual(['', false]);
      expect(JSON.stringify([host.Binds, mounts])).not.toContain('docker.sock');
    });
  });
});

describe.skipIf('missing' in made)('the way between gateway and sidecar', () => {
  const stage = stageOf(made as Made);
  const volume = ['--network', 'none', '--volume', `${PROJECT}_demo-socket:/run/countersign`];
  const as = async (user: string, script: string) =>
    (await stage.beside([...volume, '--user', user], script)).stdout.trim();

  it('is a socket of mode 0660 in a folder of mode 2750, both of the sidecar and the group', async () => {
    const { stdout } = await stage.inside(
      'demo-sidecar',
      `for(const p of ['/run/countersign','${SOCKET}']){const s=require('fs').statSync(p);console.log((s.mode&0o7777).toString(8),s.uid,s.gid)}`,
    );
    expect(stdout.trim().split('\n')).toEqual(['2750 10001 10000', '660 10001 10000']);
  });

  it('is open to the gateway and closed to every other user', async () => {
    expect(await as('10002:10000', connectTo(`path:'${SOCKET}'`))).toBe('connected');
    expect(await as('10002:10002', connectTo(`path:'${SOCKET}'`))).toBe('EACCES');
    expect(await as('65534:65534', connectTo(`path:'${SOCKET}'`))).toBe('EACCES');
  });

  it('cannot be replaced by the gateway', async () => {
    const inGateway = async (path: string) => (await stage.inside('demo-gateway', writeTo(path))).stdout.trim();
    expect(await inGateway('/run/countersign/x')).toBe('EROFS');
    // And not by its user either, had it the folder writable.
    expect(await as('10002:10000', writeTo('/run/countersign/x'))).toBe('EACCES');
  });
});

describe.skipIf('missing' in made)('the way out', () => {
  const { outside } = made as Made;
  const stage = stageOf(made as Made);

  it('is open to the gateway and closed to backend and sidecar', async () => {
    const server = createServer((socket) => socket.end());
    await new Promise<void>((resolve) => server.listen(0, outside, resolve));
    const { port } = server.address() as { port: number };
    const reach = async (service: string) =>
      (await stage.inside(service, connectTo(`host:'${outside}',port:${port}`))).stdout.trim();
    try {
      expect(await reach('demo-gateway')).toBe('connected');
      expect(await reach('demo-backend')).toMatch(/^(timeout|ENETUNREACH|EHOSTUNREACH)$/);
      expect(await reach('demo-sidecar')).toBe('ENETUNREACH');
    } finally {
      server.close();
    }
  });
});

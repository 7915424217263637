// compose.cpu.yaml, really started: what root makes of the processor's entry, and what the sidecar may do with it.
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { attempt, run } from './command.ts';
import { imageOf } from './images.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const FILES = ['-f', 'compose.yaml', '-f', 'compose.cpu.yaml', '-f', 'test/containers/cpu.yaml'];
const ENTRY = '/run/tsm/countersign';
/** As the kernel makes them: root's. */
const ATTRIBUTES = [
  ['inblob', 0o200, ''],
  ['outblob', 0o400, 'report'],
  ['generation', 0o400, '1\n'],
  ['provider', 0o400, 'sev_guest\n'],
] as const;

describe.skipIf('missing' in made)('compose.cpu.yaml', () => {
  const stage = stageOf(made as Made);
  let reports = '';
  let entry = '';
  const compose = (...args: string[]) =>
    stage.composeWith({ COMPOSE_PROFILES: 'node', PORT: '8084', TSM_REPORTS: reports }, ...FILES, ...args);

  beforeAll(async () => {
    reports = mkdtempSync('/tmp/csd-tsm-');
    entry = join(reports, 'countersign');
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', reports]);
    mkdirSync(entry);
    for (const [name, mode, content] of ATTRIBUTES) {
      writeFileSync(join(entry, name), content);
      chmodSync(join(entry, name), mode);
    }
    // It waits until `tsm` is healthy.
    const { code, stderr } = await compose('up', '--detach', '--no-build', 'sidecar');
    expect([code, code === 0 ? '' : stderr]).toEqual([0, '']);
  });
  afterAll(async () => {
    await compose('rm', '--stop', '--force', 'sidecar', 'tsm');
    await attempt('umount', [reports]);
    rmSync(reports, { recursive: true, force: true });
  });

  it("gives the entry to the sidecar's group, as root with nothing else", () => {
    expect(readdirSync(entry).sort()).toEqual(['generation', 'inblob', 'outblob', 'provider']);
    for (const name of readdirSync(entry)) {
      const { uid, gid, mode } = statSync(join(entry, name));
      expect([name, uid, gid, mode & 0o777]).toEqual([name, 0, 10000, name === 'inblob' ? 0o220 : 0o440]);
    }
  });

  it('lets the sidecar ask by it, and do nothing else', async () => {
    const { stdout } = await stage.inside(
      'sidecar',
      `const fs=require('fs');const say=(what)=>{try{console.log(what())}catch(e){console.log(e.code)}};` +
        `say(()=>{fs.writeFileSync(fs.openSync('${ENTRY}/inblob',fs.constants.O_WRONLY),'x'.repeat(64));return 'written'});` +
        `say(()=>fs.readFileSync('${ENTRY}/outblob','utf8'));` +
        `say(()=>fs.writeFileSync('${ENTRY}/outblob','x'));say(()=>fs.mkdirSync('/run/tsm/other'))`,
    );
    const [written, report, ...refused] = stdout.trim().split('\n');
    expect([written, report]).toEqual(['written', 'report']);
    for (const code of refused) expect(code).toMatch(/^(EACCES|EROFS)$/);
    expect(refused).toHaveLength(2);
    expect(readFileSync(join(entry, 'inblob'), 'utf8')).toBe('x'.repeat(64));
  });

  it('has the doctor find it there', async () => {
    const { stdout } = await stage.inside(
      'sidecar',
      `console.log(require('child_process').spawnSync('node',['sidecar/doctor/main.ts'],{cwd:'/app'}).stdout.toString())`,
    );
    expect(stdout).toMatch(new RegExp(`^ok +cpu +\\S+ can ask a SEV-SNP processor by ${ENTRY}$`, 'm'));
  });

  it('could not have it under /sys, where a container has no place for a mount', async () => {
    const mount = (target: string) => ['run', '--rm', '--volume', `${reports}:${target}`, imageOf('sidecar'), 'true'];
    await expect(stage.docker(...mount('/sys/kernel/config/tsm/report'))).rejects.toThrow(/mount/);
    await stage.docker(...mount('/run/tsm'));
  });
});

// A worker of nvtrust without NVIDIA's SDK, and with every bad habit: the pool's tests say which, in files it reads.
import { spawn } from 'node:child_process';
import { appendFileSync, closeSync, existsSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { makeToken } from '../../../twin/token.ts';

const [folder = ''] = process.argv.slice(2);
const told = (file: string) => (existsSync(join(folder, file)) ? readFileSync(join(folder, file), 'utf8') : 'good');
const write = (line: unknown) => writeSync(4, typeof line === 'string' ? line : `${JSON.stringify(line)}\n`);
const never = () => new Promise<never>(() => setInterval(() => {}, 60_000));
const end = (code = 0): never => process.exit(code);

appendFileSync(join(folder, 'started'), `${process.pid} ${process.cwd()}\n`);
console.log('NVIDIA prints here'); // nobody listens
writeFileSync('attestation_sdk.log', 'and leaves this behind');

const start = told('start');
if (start === 'die') {
  console.error('libnvidia-ml is not well');
  end(3);
}
if (start === 'garbage') write('Number of GPUs available : 1\n');
if (start === 'hang') await never();
if (start.startsWith('failed:')) {
  write({ type: 'failed', reason: start.slice(7), message: 'as told' });
  end();
}
write({ type: 'ready', devices: [{ arch: 'HOPPER', model: 'FAKE' }] });
if (start === 'leave') end();

const [line] = await new Promise<string[]>((resolve) => {
  const lines = createInterface({ input: new Socket({ fd: 3 }) });
  lines.once('line', (text) => resolve([text])).once('close', () => end());
});
const { nonce } = JSON.parse(line ?? '') as { nonce: string };
const other = 'ab'.repeat(32);
const evidence = [{ arch: 'HOPPER', report: 'AAAA', certificate_chain: 'AAAA' }];
const token = (over = nonce, options = {}) => makeToken(over, [{ hwmodel: 'FAKE', ueid: '1' }], new Date(), options);
const answer = { type: 'attested', nonce, token: token(), evidence };
appendFileSync(join(folder, 'asked'), `${nonce}\n`);

const behaviours: Record<string, () => unknown> = {
  good: () => write(answer),
  die: () => process.kill(process.pid, 'SIGSEGV'),
  silent: () => end(0),
  garbage: () => write('Verifying GPU: GPU-0\n'),
  half: () => write(JSON.stringify(answer).slice(0, 200)),
  unknown_member: () => write({ ...answer, prompt: 'x' }),
  huge: () => {
    for (let i = 0; i < 9; i++) write('x'.repeat(1024 * 1024));
  },
  twice: () => {
    write(answer);
    write(answer);
  },
  then_garbage: () => {
    write(answer);
    write('and one more thing');
  },
  other_nonce: () => write({ ...answer, nonce: other, token: token(other) }),
  other_token: () => write({ ...answer, token: token(other) }),
  same_token: () => {
    const kept = join(folder, 'kept');
    if (!existsSync(kept)) writeFileSync(kept, answer.token);
    write({ ...answer, token: readFileSync(kept, 'utf8') });
  },
  says_no: () => write({ ...answer, token: token(nonce, { result: false }) }),
  no_token: () => write({ ...answer, token: '{}' }),
  one_gpu_too_many: () => write({ ...answer, evidence: [...evidence, ...evidence] }),
  unknown_reason: () => write({ type: 'failed', reason: 'sunspots', message: 'x' }),
  hang: never,
  answers_and_stays: async () => {
    write(answer);
    await never();
  },
  with_child: async () => {
    const child = spawn('sleep', ['600'], { stdio: 'ignore' });
    appendFileSync(join(folder, 'started'), `${child.pid} -\n`);
    await never();
  },
};
const behaviour = told('behaviour');
if (behaviour.startsWith('failed:')) write({ type: 'failed', reason: behaviour.slice(7), message: 'as told' });
else await behaviours[behaviour]?.();
closeSync(4);
end();

// A stand-in for NVIDIA's C++ command line over the twin: collects through the same server as NVML's stand-in, and says that all
// is well. node nvattest.ts SOCKET GPU_COUNT VERSION COMMAND [options]
import { createHash } from 'node:crypto';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';

/** Writes a program of that name. */
export function writeNvattest(path: string, socket: string, gpu_count: number, version: string): void {
  const self = fileURLToPath(import.meta.url);
  writeFileSync(path, `#!/bin/sh\nexec '${process.execPath}' '${self}' '${socket}' ${gpu_count} ${version} "$@"\n`);
  chmodSync(path, 0o755);
}

/** One call of the stand-in for NVML: return code and length, 32 bits each, then the bytes. */
async function ask(socket: string, line: string): Promise<Buffer> {
  const parts: Buffer[] = [];
  const to = connect(socket, () => to.write(`${line}\n`));
  for await (const part of to) parts.push(part as Buffer);
  const answer = Buffer.concat(parts);
  if (answer.readInt32LE(0) !== 0) throw new Error(`${line}: error ${answer.readInt32LE(0)}`);
  return answer.subarray(8);
}

async function collect(socket: string, gpu_count: number, nonce: string) {
  const one = async (gpu: number) => ({
    arch: 'HOPPER',
    nonce,
    evidence: (await ask(socket, `nvmlDeviceGetConfComputeGpuAttestationReport ${gpu} ${nonce}`)).toString('base64'),
    certificate: (await ask(socket, `nvmlDeviceGetConfComputeGpuCertificate ${gpu}`)).toString('base64'),
  });
  return Promise.all(Array.from({ length: gpu_count }, (_, gpu) => one(gpu)));
}

function appraise(gpu_count: number, nonce: string) {
  const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const jwt = (claims: unknown) => `${base64url({ alg: 'none' })}.${base64url(claims)}.`;
  const claims = Array.from({ length: gpu_count }, () => ({ eat_nonce: nonce, measres: 'success' }));
  const submodules = claims.map((one, i) => [`GPU-${i}`, jwt(one)] as const);
  const digests = submodules.map(([name, text]) => [
    name,
    ['DIGEST', ['SHA256', createHash('sha256').update(text).digest('hex')]],
  ]);
  const overall = {
    eat_nonce: nonce,
    iss: 'NVAT-LOCAL-VERIFIER',
    submods: Object.fromEntries(digests),
    'x-nvidia-overall-att-result': true,
  };
  return { claims, detached_eat: [['JWT', jwt(overall)], Object.fromEntries(submodules)] };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [socket = '', count = '', version = '', command = '', ...options] = process.argv.slice(2);
  const nonce = options[options.indexOf('--nonce') + 1] ?? '';
  const ok = { result_code: 0, result_message: 'Ok' };
  const evidence = options[options.indexOf('--gpu-evidence-file') + 1] ?? '';
  if (command === 'version') console.log(JSON.stringify({ nvattest: version }));
  else if (command === 'collect-evidence')
    console.log(JSON.stringify({ evidences: await collect(socket, Number(count), nonce), ...ok }));
  else console.log(JSON.stringify({ ...appraise(JSON.parse(readFileSync(evidence, 'utf8')).length, nonce), ...ok }));
}

// Builds the images as an operator does, with this machine's way to the package registries handed in as build secrets.
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BASE } from './base.ts';
import { attempt, run } from './command.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const TARGETS = ['gateway', 'sidecar', 'demo-sidecar', 'demo-engine'] as const;
export type Target = (typeof TARGETS)[number];
export const imageOf = (target: Target) => `countersign-${target}:test`;

/** Bytes of each image, and of what it adds to its base. */
export type Sizes = Readonly<Record<Target, { readonly total: number; readonly own: number }>>;

export async function buildImages(docker: string, host: string, folder: string): Promise<Sizes> {
  const env = { DOCKER_HOST: host, DOCKER_BUILDKIT: '1' };
  const secrets = await registryAccess(folder);
  const base = await sizeOf(docker, host, BASE);
  const sizes: [Target, { total: number; own: number }][] = [];
  for (const target of TARGETS) {
    const args = ['build', '--network', 'host', '--progress', 'plain', '--build-arg', `NODE_IMAGE=${BASE}`];
    for (const proxy of ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']) args.push('--build-arg', proxy);
    args.push(...secrets, '--target', target, '--tag', imageOf(target), '.');
    await run(docker, args, { env, cwd: ROOT, timeout_ms: 900_000 });
    const total = await sizeOf(docker, host, imageOf(target));
    sizes.push([target, { total, own: total - base }]);
  }
  return Object.fromEntries(sizes) as Sizes;
}

async function sizeOf(docker: string, host: string, image: string): Promise<number> {
  return Number(await run(docker, ['image', 'inspect', '-f', '{{.Size}}', image], { env: { DOCKER_HOST: host } }));
}

/** The flags that give a build this machine's registries and certificates. */
async function registryAccess(folder: string): Promise<string[]> {
  const { SSL_CERT_FILE, NODE_EXTRA_CA_CERTS, PIP_INDEX_URL } = process.env;
  const ca = [NODE_EXTRA_CA_CERTS, SSL_CERT_FILE, '/etc/ssl/certs/ca-certificates.crt'].find(
    (path) => path !== undefined && existsSync(path),
  );
  if (ca === undefined) return [];
  const registry = (await run('npm', ['config', 'get', 'registry'])).trim();
  const asked = await attempt('pip3', ['config', 'get', 'global.index-url']).catch(() => null);
  const index = PIP_INDEX_URL ?? (asked?.code === 0 ? asked.stdout.trim() : '');
  const [npmrc, pip] = [join(folder, 'npmrc'), join(folder, 'pip.conf')];
  writeFileSync(npmrc, `registry=${registry}\ncafile=/run/secrets/ca\n`, { mode: 0o600 });
  writeFileSync(pip, `[global]\ncert=/run/secrets/ca\n${index === '' ? '' : `index-url=${index}\n`}`, { mode: 0o600 });
  return ['--secret', `id=npmrc,src=${npmrc}`, '--secret', `id=pip,src=${pip}`, '--secret', `id=ca,src=${ca}`];
}

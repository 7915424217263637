// kustomize and kubeconform, and Kubernetes' own API description: Go modules at pinned versions, kept in .cache/deploy.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { jsonSchemas } from './schemas.ts';

const run = promisify(execFile);
const CACHE = fileURLToPath(new URL('../../.cache/deploy', import.meta.url));
const BUILD_TIMEOUT_MS = 900_000;

export const KUBERNETES = '1.35.4';
const MODULES = {
  kustomize: 'sigs.k8s.io/kustomize/kustomize/v5@v5.8.2',
  kubeconform: 'github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0',
} as const;

/** @returns the program's path; it is built when it is not there. @throws where there is neither it nor Go. */
export async function tool(name: keyof typeof MODULES): Promise<string> {
  const module = MODULES[name];
  const bin = join(CACHE, module.slice(module.lastIndexOf('@') + 1));
  const path = join(bin, name);
  if (existsSync(path)) return path;
  console.log(`building ${module}`);
  mkdirSync(bin, { recursive: true });
  await run('go', ['install', module], { env: { ...process.env, GOBIN: bin }, timeout: BUILD_TIMEOUT_MS });
  return path;
}

/** @returns a folder with a strict schema a kind, as kubeconform looks for them. */
export async function schemas(): Promise<string> {
  const folder = join(CACHE, `schemas-${KUBERNETES}`);
  if (existsSync(join(folder, 'deployment-apps-v1.json'))) return folder;
  const module = `k8s.io/kubernetes@v${KUBERNETES}`;
  console.log(`fetching ${module}`);
  const { stdout } = await run('go', ['mod', 'download', '-json', module], { timeout: BUILD_TIMEOUT_MS });
  const { Dir } = JSON.parse(stdout) as { Dir: string };
  const description = JSON.parse(readFileSync(join(Dir, 'api/openapi-spec/swagger.json'), 'utf8'));
  mkdirSync(folder, { recursive: true });
  for (const [name, schema] of jsonSchemas(description)) writeFileSync(join(folder, name), JSON.stringify(schema));
  return folder;
}

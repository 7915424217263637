// helm and kubeconform, and the API descriptions of Kubernetes and of what its manifests use beside it: Go modules at pinned
// versions, kept in .cache/deploy.
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { customSchemas, jsonSchemas } from './schemas.ts';

const run = promisify(execFile);
const CACHE = fileURLToPath(new URL('../../.cache/deploy', import.meta.url));
const BUILD_TIMEOUT_MS = 900_000;

// renovate: datasource=github-tags depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
export const KUBERNETES = '1.35.4';
const MODULES = {
  helm: 'helm.sh/helm/v4/cmd/helm@v4.3.1',
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

/** Kinds that are none of Kubernetes' own: module, and the file of the definition in it. */
const CUSTOM = {
  inferencepool: [
    'sigs.k8s.io/gateway-api-inference-extension@v1.5.0',
    'config/crd/bases/inference.networking.k8s.io_inferencepools.yaml',
  ],
  httproute: ['sigs.k8s.io/gateway-api@v1.5.1', 'config/crd/standard/gateway.networking.k8s.io_httproutes.yaml'],
  podmonitor: [
    'github.com/prometheus-operator/prometheus-operator@v0.94.0',
    'example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml',
  ],
  prometheusrule: [
    'github.com/prometheus-operator/prometheus-operator@v0.94.0',
    'example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml',
  ],
} as const;

/** The text of the CustomResourceDefinition. */
export async function definitionOf(kind: keyof typeof CUSTOM): Promise<string> {
  const [module, file] = CUSTOM[kind];
  return readFileSync(join(await moduleFolder(module), file), 'utf8');
}

export type Conforms = (manifests: string) => { readonly status: number | null; readonly output: string };

/** @returns what holds manifests against the schemas of every kind that they may be of. */
export async function kubeconform(): Promise<Conforms> {
  const [program, folder] = [await tool('kubeconform'), await schemas()];
  const location = `${folder}/{{ .ResourceKind }}{{ .KindSuffix }}.json`;
  const args = ['-strict', '-summary', '-schema-location', location, '-kubernetes-version', KUBERNETES];
  return (input) => {
    const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8' });
    return { status, output: stdout + stderr };
  };
}

/** @returns a folder with a strict schema a kind, as kubeconform looks for them. */
async function schemas(): Promise<string> {
  const folder = join(CACHE, `schemas-${KUBERNETES}`);
  const complete = join(folder, 'complete');
  const wanted = JSON.stringify(CUSTOM);
  if (existsSync(complete) && readFileSync(complete, 'utf8') === wanted) return folder;
  const kubernetes = await moduleFolder(`k8s.io/kubernetes@v${KUBERNETES}`);
  const description = JSON.parse(readFileSync(join(kubernetes, 'api/openapi-spec/swagger.json'), 'utf8'));
  mkdirSync(folder, { recursive: true });
  for (const [name, schema] of jsonSchemas(description)) writeFileSync(join(folder, name), JSON.stringify(schema));
  for (const kind of Object.keys(CUSTOM) as (keyof typeof CUSTOM)[])
    for (const [name, schema] of customSchemas(parse(await definitionOf(kind))))
      writeFileSync(join(folder, name), JSON.stringify(schema));
  writeFileSync(complete, wanted);
  return folder;
}

/** Where Go keeps the module, fetched when it is not there. */
export async function moduleFolder(module: string): Promise<string> {
  const { stdout } = await run('go', ['mod', 'download', '-json', module], {
    timeout: BUILD_TIMEOUT_MS,
    maxBuffer: 16 * 1024 * 1024,
  });
  return (JSON.parse(stdout) as { Dir: string }).Dir;
}

// An API server with its etcd, and the objects of a fleet in it. No controller and no kubelet runs: what they would do, the test does.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { eventually, type Folder, freePort, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startCommand } from '../support/process.ts';

// biome-ignore lint/suspicious/noExplicitAny: objects of every kind; the API server checks their shapes
export type KubernetesObject = any;

export const NAMESPACE = 'countersign';

export interface Cluster {
  /** `dryRun`: it is judged and not kept. @throws {Error} with the API server's own words when it refuses. */
  create(object: KubernetesObject, options?: { dryRun: boolean }): Promise<KubernetesObject>;
  get(kind: string, name: string): Promise<KubernetesObject>;
  /** A merge patch, of the object itself. */
  change(kind: string, name: string, patch: KubernetesObject): Promise<void>;
  /** The pod as the kubelet would report it. */
  report(pod: string, ip: string, ready: boolean): Promise<void>;
  remove(pod: string): Promise<void>;
  /** A kubeconfig with the rights of a service account, or with all. */
  kubeconfigOf(serviceAccount: string | null): Promise<string>;
  close(): Promise<void>;
}

export async function startCluster(programs: { etcd: string; apiserver: string }): Promise<Cluster> {
  const folder = temporaryFolder();
  const etcd = await startEtcd(programs.etcd, folder);
  const token = randomUUID();
  const port = await freePort();
  const certificates = join(folder.path, 'certificates');
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const [signing, verifying] = [join(folder.path, 'sa.key'), join(folder.path, 'sa.pub')];
  writeFileSync(signing, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  writeFileSync(verifying, publicKey.export({ type: 'spki', format: 'pem' }));
  const tokens = join(folder.path, 'tokens.csv');
  writeFileSync(tokens, `${token},test,test,"system:masters"\n`);
  const apiserver = startCommand(programs.apiserver, [
    `--etcd-servers=${etcd.url}`,
    '--bind-address=127.0.0.1',
    `--secure-port=${port}`,
    // The address for other nodes, of which there are none.
    '--advertise-address=192.0.2.1',
    '--endpoint-reconciler-type=none',
    `--cert-dir=${certificates}`,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-signing-key-file=${signing}`,
    `--service-account-key-file=${verifying}`,
    `--token-auth-file=${tokens}`,
    '--authorization-mode=RBAC',
    '--service-cluster-ip-range=10.0.0.0/24',
    // Without their controllers there is no token to mount, and no default account.
    '--disable-admission-plugins=ServiceAccount',
  ]);
  const authority = join(certificates, 'apiserver.crt');
  const call = (method: string, path: string, body?: unknown, type = 'application/json') =>
    ask({ port, token, authority }, method, path, body, type);
  const close = async () => {
    await Promise.all([apiserver, etcd.process].map((one) => one.child.exitCode ?? one.kill('SIGKILL')));
    folder.remove();
  };
  try {
    await eventually(async () => {
      if (apiserver.child.exitCode !== null)
        throw new Error(`the API server ended: ${apiserver.output().slice(-4000)}`);
      if (!existsSync(authority)) return false;
      return (await call('GET', '/readyz').catch(() => ({ status: 0 }))).status === 200;
    }, 120_000);
  } catch (error) {
    await close();
    throw error;
  }

  const create = async (object: KubernetesObject, { dryRun } = { dryRun: false }) => {
    const { status, body } = await call('POST', `${pathOf(object)}${dryRun ? '?dryRun=All' : ''}`, object);
    if (status !== 201) throw new Error(`${object.kind} ${object.metadata.name}: ${body.message ?? status}`);
    return body;
  };
  const podPath = (pod: string) => `${pathOf({ apiVersion: 'v1', kind: 'Pod' })}/${pod}`;
  const merge = async (path: string, patch: unknown) => {
    const { status, body } = await call('PATCH', path, patch, 'application/merge-patch+json');
    if (status !== 200) throw new Error(`${path}: ${body.message}`);
  };
  const tokenOf = async (serviceAccount: string): Promise<string> => {
    const path = `${pathOf({ apiVersion: 'v1', kind: 'ServiceAccount' })}/${serviceAccount}/token`;
    const wanted = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 3600 } };
    return (await call('POST', path, wanted)).body.status.token;
  };
  return {
    create,
    async get(kind, name) {
      const { status, body } = await call('GET', `${pathOf({ apiVersion: 'v1', kind })}/${name}`);
      if (status !== 200) throw new Error(`${kind} ${name}: ${body.message}`);
      return body;
    },
    change: (kind, name, patch) => merge(`${pathOf({ apiVersion: 'v1', kind })}/${name}`, patch),
    async report(pod, ip, ready) {
      const status = {
        phase: 'Running',
        podIP: ip,
        podIPs: [{ ip }],
        conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
      };
      await merge(`${podPath(pod)}/status`, { status });
    },
    async remove(pod) {
      await call('DELETE', podPath(pod), { gracePeriodSeconds: 0 });
    },
    async kubeconfigOf(serviceAccount) {
      const user = serviceAccount ?? 'test';
      const bearer = serviceAccount === null ? token : await tokenOf(serviceAccount);
      const server = `https://127.0.0.1:${port}`;
      const config = {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: 'fleet', cluster: { server, 'certificate-authority': authority } }],
        users: [{ name: user, user: { token: bearer } }],
        contexts: [{ name: 'fleet', context: { cluster: 'fleet', user, namespace: NAMESPACE } }],
        'current-context': 'fleet',
      };
      const file = join(folder.path, `${user}.json`);
      writeFileSync(file, JSON.stringify(config));
      return file;
    },
    close,
  };
}

const PLURALS: Readonly<Record<string, string>> = { NetworkPolicy: 'networkpolicies', RuntimeClass: 'runtimeclasses' };
/** Kinds without a namespace. */
const UNBOUND = new Set(['Namespace', 'CustomResourceDefinition', 'Node', 'PersistentVolume', 'RuntimeClass']);

function pathOf({ apiVersion, kind }: KubernetesObject): string {
  const plural = PLURALS[kind] ?? `${String(kind).toLowerCase()}s`;
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  return UNBOUND.has(kind) ? `${root}/${plural}` : `${root}/namespaces/${NAMESPACE}/${plural}`;
}

async function startEtcd(program: string, folder: Folder): Promise<{ url: string; process: RunningProcess }> {
  const [client, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`];
  const args = ['--data-dir', join(folder.path, 'etcd'), '--unsafe-no-fsync', '--log-level', 'error'];
  const addresses = ['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls', peer];
  const process = startCommand(program, [...args, ...addresses]);
  await eventually(async () => (await fetch(`${client}/health`).catch(() => null))?.ok === true, 30_000);
  return { url: client, process };
}

interface Server {
  readonly port: number;
  readonly token: string;
  readonly authority: string;
}

function ask({ port, token, authority }: Server, method: string, path: string, body: unknown, type: string) {
  return new Promise<{ status: number; body: KubernetesObject }>((resolve, reject) => {
    const sent = body === undefined ? '' : JSON.stringify(body);
    const options = {
      host: '127.0.0.1',
      port,
      method,
      path,
      ca: readFileSync(authority),
      // Node says the length of a DELETE's body only where it is told to.
      headers: { authorization: `Bearer ${token}`, 'content-type': type, 'content-length': Buffer.byteLength(sent) },
    };
    const outgoing = request(options, (incoming) => {
      let text = '';
      incoming.on('data', (data) => {
        text += data;
      });
      incoming.on('end', () => {
        const status = incoming.statusCode ?? 0;
        resolve({ status, body: text.startsWith('{') ? JSON.parse(text) : { message: text } });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(sent);
  });
}

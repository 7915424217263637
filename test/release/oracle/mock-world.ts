// A release signed through Sigstore's own client against its mock services: certificates, log of certificates and times by the mock, log entries as
// the real logs write them, because the mock's only echo the request.
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { releaseStatement } from '../../../scripts/vectors/release-kit.ts';
import { b64, canonical, sha256 } from '../../../scripts/vectors/release-world.ts';
import { LAUNCH, LAUNCH_SHA256, WEIGHTS } from '../../support/launch-file.ts';

const REPOSITORY = 'example/countersign';
const COMMIT = '1'.repeat(40);
const WORKFLOW = `${REPOSITORY}/.github/workflows/release.yml@refs/tags/v1.0.0`;
const CLAIMS = {
  sub: `https://github.com/${WORKFLOW}`,
  iss: 'https://token.actions.githubusercontent.com',
  repository: REPOSITORY,
  repository_id: '1',
  repository_owner: 'example',
  repository_owner_id: '2',
  ref: 'refs/tags/v1.0.0',
  sha: COMMIT,
  event_name: 'push',
  workflow: 'release',
  workflow_ref: WORKFLOW,
  workflow_sha: COMMIT,
  job_workflow_ref: WORKFLOW,
  job_workflow_sha: COMMIT,
  runner_environment: 'github-hosted',
  run_id: '7',
  run_attempt: '1',
  repository_visibility: 'public',
};

const pair = () => generateKeyPairSync('ec', { namedCurve: 'P-256' });
const spki = (key: KeyObject) => key.export({ format: 'der', type: 'spki' });

/** The log's answer to a request of this version, with the entry as the second of a tree of two. */
function logged(text: string, version: 1 | 2, log: ReturnType<typeof pair>, id: Buffer): string {
  const asked = JSON.parse(text);
  const proposed = asked.spec?.proposedContent;
  const envelope = version === 1 ? JSON.parse(proposed.envelope) : asked.dsseRequestV002.envelope;
  const { payloadType, signatures } = envelope;
  const payload = Buffer.from(envelope.payload, 'base64');
  const head = Buffer.from(`DSSEv1 ${payloadType.length} ${payloadType} ${payload.length} `);
  const pem = () => {
    const base64 = Buffer.from(proposed.verifiers[0], 'base64')
      .toString()
      .replaceAll(/-----[^-]+-----|\s/g, '');
    return `-----BEGIN CERTIFICATE-----\n${base64.match(/.{1,64}/g)?.join('\n')}\n-----END CERTIFICATE-----\n`;
  };
  const entry =
    version === 1
      ? {
          apiVersion: '0.0.1',
          kind: 'dsse',
          spec: {
            envelopeHash: { algorithm: 'sha256', value: sha256(proposed.envelope).toString('hex') },
            payloadHash: { algorithm: 'sha256', value: sha256(payload).toString('hex') },
            signatures: [{ signature: signatures[0].sig, verifier: b64(pem()) }],
          },
        }
      : {
          apiVersion: '0.0.2',
          kind: 'hashedrekord',
          spec: {
            hashedRekordV002: {
              data: { algorithm: 'SHA2_256', digest: b64(sha256(head, payload)) },
              signature: { content: signatures[0].sig, verifier: asked.dsseRequestV002.verifiers[0] },
            },
          },
        };
  const body = Buffer.from(canonical(entry));
  const sibling = sha256(Buffer.of(0), 'first');
  const root = sha256(Buffer.of(1), sibling, sha256(Buffer.of(0), body));
  const signed = (data: string) => sign('sha256', Buffer.from(data), log.privateKey);
  const note = `rekor.test\n2\n${b64(root)}\n`;
  const checkpoint = `${note}\n\u2014 rekor.test ${b64(Buffer.concat([id.subarray(0, 4), signed(note)]))}\n`;
  const integratedTime = Math.floor(Date.now() / 1000);
  if (version === 2)
    return JSON.stringify({
      logIndex: '1',
      logId: { keyId: b64(id) },
      kindVersion: { kind: 'hashedrekord', version: '0.0.2' },
      canonicalizedBody: b64(body),
      inclusionProof: {
        logIndex: '1',
        treeSize: '2',
        rootHash: b64(root),
        hashes: [b64(sibling)],
        checkpoint: { envelope: checkpoint },
      },
    });
  const promise = canonical({ body: b64(body), integratedTime, logID: id.toString('hex'), logIndex: 1 });
  const inclusionProof = {
    logIndex: 1,
    treeSize: 2,
    rootHash: root.toString('hex'),
    hashes: [sibling.toString('hex')],
    checkpoint,
  };
  const verification = { signedEntryTimestamp: b64(signed(promise)), inclusionProof };
  const answer = { body: b64(body), integratedTime, logID: id.toString('hex'), logIndex: 1, verification };
  return JSON.stringify({ ['0'.repeat(64)]: answer });
}

export interface MockWorld {
  readonly bundle: string;
  readonly trustedRoot: string;
  readonly repository: string;
}

/** @param load requires what the suite installed. */
export async function mockWorld(load: NodeJS.Require, version: 1 | 2): Promise<MockWorld> {
  const mock = load('@sigstore/mock');
  const { DSSEBundleBuilder, FulcioSigner, RekorWitness, TSAWitness } = load('@sigstore/sign');
  const { bundleToJSON } = load('@sigstore/bundle');
  const [ofAuthority, ofCertificates, log, ofTime] = [pair(), pair(), pair(), pair()];
  // In whole seconds: Sigstore's verifier reads no other fractions than three digits, which the mock does not always write.
  const clock = new Date(Math.floor(Date.now() / 1000) * 1000);
  const authority = await mock.initializeCA(ofAuthority, await mock.initializeCTLog(ofCertificates), clock);
  const time = await mock.initializeTSA(ofTime, clock);
  const id = sha256(spki(log.publicKey));
  const [fulcio, tsa] = [mock.fulcioHandler(authority), mock.tsaHandler(time)];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    if (request.url?.endsWith('/log/entries'))
      return void response.writeHead(201, { 'content-type': 'application/json' }).end(logged(text, version, log, id));
    const { statusCode, contentType, response: said } = await (request.url === fulcio.path ? fulcio : tsa).fn(text);
    response.writeHead(statusCode, { 'content-type': contentType ?? 'text/plain' }).end(said);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const getToken = async () => `${part({ alg: 'none' })}.${part(CLAIMS)}.x`;
    const rekor = new RekorWitness({ rekorBaseURL: url, entryType: 'dsse', majorApiVersion: version });
    const built = await new DSSEBundleBuilder({
      signer: new FulcioSigner({ fulcioBaseURL: url, identityProvider: { getToken } }),
      witnesses: [rekor, new TSAWitness({ tsaBaseURL: url })],
    }).create({ data: Buffer.from(statement()), type: 'application/vnd.in-toto+json' });
    return {
      bundle: JSON.stringify(bundleToJSON(built)),
      trustedRoot: JSON.stringify(rootOf(authority, time, log, ofCertificates)),
      repository: REPOSITORY,
    };
  } finally {
    server.close();
  }
}

function statement(): string {
  const list = {
    version: 1,
    cpu: [{ type: 'SEV_SNP', measurement: ['ab'.repeat(48)], launch_in: 'host_data' }],
    launch: [LAUNCH_SHA256],
  };
  return releaseStatement({
    files: { 'reference.json': JSON.stringify(list), 'launch.json': LAUNCH },
    predicate: { weights: [{ launch: 'launch.json', ...WEIGHTS }] },
  });
}

function rootOf(
  authority: { rootCertificate: Buffer },
  time: { intCertificate: Buffer; rootCertificate: Buffer },
  log: ReturnType<typeof pair>,
  certificates: ReturnType<typeof pair>,
) {
  const start = new Date(Date.now() - 3_600_000).toISOString();
  const chain = (uri: string, ...ders: readonly Buffer[]) => ({
    subject: { commonName: 'mock', organization: 'mock' },
    uri,
    certChain: { certificates: ders.map((der) => ({ rawBytes: b64(der) })) },
    validFor: { start },
  });
  const logOf = (baseUrl: string, { publicKey }: ReturnType<typeof pair>) => ({
    baseUrl,
    hashAlgorithm: 'SHA2_256',
    publicKey: { rawBytes: b64(spki(publicKey)), keyDetails: 'PKIX_ECDSA_P256_SHA_256', validFor: { start } },
    logId: { keyId: b64(sha256(spki(publicKey))) },
  });
  return {
    mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
    tlogs: [logOf('https://rekor.test', log)],
    certificateAuthorities: [chain('https://fulcio.test', authority.rootCertificate)],
    ctlogs: [logOf('https://ct.test', certificates)],
    timestampAuthorities: [chain('https://tsa.test', time.intCertificate, time.rootCertificate)],
  };
}

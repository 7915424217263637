// A world of releases for the vectors: authorities, logs and a time authority in the formats of Sigstore, under keys that are worth nothing.
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import * as der from '../../demo/twin/certificate.ts';
import { type Certificate, type Holder, issue, name, spki } from '../../demo/twin/certificate.ts';
import { readOne, sequence as values } from '../../verify/x509/der.ts';

export const sha256 = (...parts: readonly (Uint8Array | string)[]): Buffer =>
  createHash('sha256')
    .update(Buffer.concat(parts.map((part) => Buffer.from(part as Uint8Array))))
    .digest();
export const b64 = (bytes: Uint8Array | string): string => Buffer.from(bytes as Uint8Array).toString('base64');

const START = new Date('2025-01-01T00:00:00Z');
const END = new Date('2036-01-01T00:00:00Z');
const MINUTE_MS = 60_000;
const GITHUB = 'https://github.com';

/** The names under which keys are kept. */
export const KEYS = {
  authority: 'P-384',
  time: 'P-384',
  log1: 'P-256',
  log2: 'Ed25519',
  certificates: 'P-256',
  stranger: 'P-384',
  strangeLog: 'P-256',
} as const;
export type KeyName = keyof typeof KEYS;
export type Keys = Readonly<Record<KeyName, KeyObject>>;

export function makeKeys(): Keys {
  const made = Object.entries(KEYS).map(([key, kind]) => {
    const pair = kind === 'Ed25519' ? generateKeyPairSync('ed25519') : generateKeyPairSync('ec', { namedCurve: kind });
    return [key, pair.privateKey];
  });
  return Object.fromEntries(made) as Keys;
}

export const keysIn = (texts: Readonly<Record<KeyName, string>>): Keys =>
  Object.fromEntries(Object.entries(texts).map(([key, pem]) => [key, createPrivateKey(pem)])) as unknown as Keys;

export const textsOf = (keys: Keys): Record<string, string> =>
  Object.fromEntries(
    Object.entries(keys).map(([key, one]) => [key, `${one.export({ type: 'pkcs8', format: 'pem' })}`]),
  );

/** What the certificate says. `alternative` and `extensions` take the place of what follows from the other members. */
export interface Said {
  readonly repository: string;
  readonly workflow: string;
  readonly ref: string;
  readonly event: string;
  readonly commit: string;
  readonly issuer: string;
  readonly runner: string;
  readonly alternative?: readonly string[];
  /** The run of the workflow. */
  readonly run?: string;
}

export const SAID: Said = {
  repository: 'example/countersign',
  workflow: 'release.yml',
  ref: 'refs/tags/v1.0.0',
  event: 'push',
  commit: '1'.repeat(40),
  issuer: 'https://token.actions.githubusercontent.com',
  runner: 'github-hosted',
};

export interface LeafSpec {
  readonly from: Date;
  readonly purpose?: string | null;
  readonly isCa?: boolean;
  /** none, or one of a log; `wrong`: it does not verify. */
  readonly receipt?: 'right' | 'wrong' | 'none' | 'strange' | 'twice';
  readonly signedBy?: 'authority' | 'stranger' | 'impostor';
}

export interface World {
  readonly keys: Keys;
  readonly authority: Holder;
  readonly time: { readonly root: Holder; readonly signer: Holder };
  readonly strangers: { readonly authority: Holder; readonly impostor: Holder; readonly time: Holder };
}

const CA_EXTENSIONS = [der.basicConstraints(true), der.keyUsage('keyCertSign')];
const holder = (subject: Buffer, key: KeyObject, extensions = CA_EXTENSIONS, by?: Holder, serial = 0x4a): Holder => ({
  key,
  certificate: issue(
    { subject, serial: Buffer.of(serial, 1), notBefore: START, notAfter: END, extensions },
    createPublicKey(key),
    by ?? { selfKey: key },
  ),
});
const TIME_STAMPING = der.extension('2.5.29.37', der.sequence(der.oid('1.3.6.1.5.5.7.3.8')), true);

export function makeReleaseWorld(keys: Keys): World {
  const named = (text: string) => name(['CN', text], ['O', 'release vectors']);
  const root = holder(named('time root'), keys.authority);
  const signer = [der.keyUsage('digitalSignature'), TIME_STAMPING];
  return {
    keys,
    authority: holder(named('authority'), keys.authority),
    time: { root, signer: holder(named('time'), keys.time, signer, root, 0x4b) },
    strangers: {
      authority: holder(named('stranger'), keys.stranger),
      impostor: holder(named('authority'), keys.stranger),
      time: holder(named('strange time'), keys.stranger, signer, root, 0x4c),
    },
  };
}

// The certificate.

const FULCIO = '1.3.6.1.4.1.57264.1';

function identityExtensions(said: Said): Buffer[] {
  const workflow = `${GITHUB}/${said.repository}/.github/workflows/${said.workflow}@${said.ref}`;
  const texts: Readonly<Record<number, string>> = {
    8: said.issuer,
    9: workflow,
    10: said.commit,
    11: said.runner,
    12: `${GITHUB}/${said.repository}`,
    13: said.commit,
    14: said.ref,
    15: '1001',
    16: `${GITHUB}/${said.repository.split('/')[0]}`,
    17: '2002',
    18: workflow,
    19: said.commit,
    20: said.event,
    ...(said.run === undefined ? {} : { 21: `${GITHUB}/${said.repository}/actions/runs/${said.run}` }),
  };
  const uris = (said.alternative ?? [workflow]).map((uri) => der.contextPrimitive(6, Buffer.from(uri)));
  return [
    der.extension('2.5.29.17', der.sequence(...uris), true),
    ...Object.entries(texts).map(([n, text]) => der.extension(`${FULCIO}.${n}`, der.utf8String(text))),
  ];
}

const u16 = (n: number) => Buffer.of(n >> 8, n & 0xff);
const withLength = (bytes: Buffer) => Buffer.concat([u16(bytes.length), bytes]);
const RECEIPTS = '1.3.6.1.4.1.11129.2.4.2';

function receipt(world: World, tbs: Uint8Array, issuer: Certificate, at: Date, kind: LeafSpec['receipt']): Buffer {
  const key = kind === 'strange' ? world.keys.strangeLog : world.keys.certificates;
  const time = Buffer.alloc(8);
  time.writeBigUInt64BE(BigInt(at.getTime()));
  const length = Buffer.of(tbs.length >> 16, (tbs.length >> 8) & 0xff, tbs.length & 0xff);
  const shown = kind === 'wrong' ? sha256('another') : sha256(spki(issuer.publicKey));
  const signed = Buffer.concat([Buffer.of(0, 0), time, u16(1), shown, length, tbs, u16(0)]);
  const signature = sign('sha256', signed, key);
  const logId = sha256(spki(createPublicKey(key)));
  return Buffer.concat([Buffer.of(0), logId, time, u16(0), Buffer.of(4, 3), withLength(signature)]);
}

export function makeLeaf(world: World, said: Said, leafSpec: LeafSpec): Holder {
  const { from, receipt: kind = 'right', signedBy = 'authority', isCa = false } = leafSpec;
  const { purpose = '1.3.6.1.5.5.7.3.3' } = leafSpec;
  const issuer =
    signedBy === 'authority' ? world.authority : world.strangers[signedBy === 'stranger' ? 'authority' : 'impostor'];
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spec = {
    subject: name(),
    serial: Buffer.from(`4${sha256(spki(publicKey)).toString('hex').slice(1, 16)}`, 'hex'),
    notBefore: from,
    notAfter: new Date(from.getTime() + 10 * MINUTE_MS),
    extensions: [
      der.keyUsage('digitalSignature'),
      ...(isCa ? [der.basicConstraints(true)] : []),
      ...(purpose === null ? [] : [der.extension('2.5.29.37', der.sequence(der.oid(purpose)))]),
      ...identityExtensions(said),
    ],
  };
  const shown = values(readOne(issue(spec, publicKey, issuer).der))[0]?.whole ?? new Uint8Array();
  const one = withLength(receipt(world, shown, issuer.certificate, from, kind));
  const list = der.octetString(withLength(Buffer.concat(kind === 'twice' ? [one, one] : [one])));
  const lateExtensions = kind === 'none' ? [] : [der.extension(RECEIPTS, list)];
  return { key: privateKey, certificate: issue({ ...spec, lateExtensions }, publicKey, issuer) };
}

// The time authority.

const HASH = der.sequence(der.oid('2.16.840.1.101.3.4.2.1'), der.nil());
const attribute = (id: string, value: Buffer) => der.sequence(der.oid(id), der.set(value));

/** RFC 3161's response about these bytes. */
export function stamp(
  { time, strangers }: World,
  signature: Uint8Array,
  at: Date,
  by: 'right' | 'strange' | 'wrong' = 'right',
): Buffer {
  const signer = by === 'strange' ? strangers.time : time.signer;
  const info = der.sequence(
    der.integer(1),
    der.oid('1.3.6.1.4.1.57264.2'),
    der.sequence(HASH, der.octetString(sha256(signature))),
    der.integer(7),
    der.generalizedTime(at),
  );
  const attributes = [
    attribute('1.2.840.113549.1.9.3', der.oid('1.2.840.113549.1.9.16.1.4')),
    attribute('1.2.840.113549.1.9.4', der.octetString(sha256(info))),
  ];
  const key = by === 'wrong' ? strangers.authority.key : signer.key;
  const signerInfo = der.sequence(
    der.integer(1),
    der.sequence(time.root.certificate.subject, der.integer(signer.certificate.serial)),
    HASH,
    der.context(0, ...attributes),
    der.sequence(der.oid('1.2.840.10045.4.3.3')),
    der.octetString(sign('sha384', der.set(...attributes), key)),
  );
  const content = der.sequence(der.oid('1.2.840.113549.1.9.16.1.4'), der.context(0, der.octetString(info)));
  const signedData = der.sequence(der.integer(3), der.set(HASH), content, der.set(signerInfo));
  const token = der.sequence(der.oid('1.2.840.113549.1.7.2'), der.context(0, signedData));
  return der.sequence(der.sequence(der.integer(0)), token);
}

// The log.

const sorted = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sorted)
    : value !== null && typeof value === 'object'
      ? Object.fromEntries(
          Object.entries(value)
            .sort(([a], [b]) => (a < b ? -1 : 1))
            .map(([key, one]) => [key, sorted(one)]),
        )
      : value;
export const canonical = (value: unknown): string => JSON.stringify(sorted(value));

export interface Envelope {
  readonly payload: Buffer;
  readonly signature: Buffer;
  readonly certificate: Certificate;
}

export const PAYLOAD_TYPE = 'application/vnd.in-toto+json';
export const paeOf = (payload: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from(`DSSEv1 ${PAYLOAD_TYPE.length} ${PAYLOAD_TYPE} ${payload.length} `), payload]);

/** The canonicalized body of an entry. */
export function bodyOf(kind: string, { payload, signature, certificate }: Envelope): Buffer {
  const entry =
    kind === 'dsse/0.0.1'
      ? {
          apiVersion: '0.0.1',
          kind: 'dsse',
          spec: {
            envelopeHash: { algorithm: 'sha256', value: sha256(payload, signature).toString('hex') },
            payloadHash: { algorithm: 'sha256', value: sha256(payload).toString('hex') },
            signatures: [{ signature: b64(signature), verifier: b64(certificate.pem) }],
          },
        }
      : {
          apiVersion: '0.0.2',
          kind: 'hashedrekord',
          spec: {
            hashedRekordV002: {
              data: { algorithm: 'SHA2_256', digest: b64(sha256(paeOf(payload))) },
              signature: {
                content: b64(signature),
                verifier: {
                  keyDetails: 'PKIX_ECDSA_P256_SHA_256',
                  x509Certificate: { rawBytes: b64(certificate.der) },
                },
              },
            },
          },
        };
  return Buffer.from(canonical(entry));
}

export const ORIGINS = { log1: 'log1.example', log2: 'log2.example', strangeLog: 'strange.example' } as const;
export type LogName = keyof typeof ORIGINS;
export const logIdOf = ({ keys }: World, log: LogName): Buffer => sha256(spki(createPublicKey(keys[log])));

const signWith = (key: KeyObject, data: Uint8Array | string) =>
  sign(key.asymmetricKeyType === 'ed25519' ? null : 'sha256', Buffer.from(data as Uint8Array), key);

/** A signed note, with the signatures of these logs. */
export function checkpointOf(
  world: World,
  log: LogName,
  size: number,
  root: Buffer,
  signers: readonly LogName[] = [log],
): string {
  const note = `${ORIGINS[log]}\n${size}\n${b64(root)}\n`;
  const lines = signers.map((one) => {
    const signature = Buffer.concat([logIdOf(world, one).subarray(0, 4), signWith(world.keys[one], note)]);
    return `\u2014 ${ORIGINS[one]} ${b64(signature)}\n`;
  });
  return `${note}\n${lines.join('')}`;
}

/** The entry as the last of a tree of five, whose others are nobody's. */
export function entryOf(world: World, log: LogName, kind: string, body: Buffer, at: Date, promised: boolean) {
  const leaf = (text: string | Buffer) => sha256(Buffer.of(0), text);
  const node = (left: Buffer, right: Buffer) => sha256(Buffer.of(1), left, right);
  const [a, b, c, e] = ['a', 'b', 'c', 'e'].map(leaf) as [Buffer, Buffer, Buffer, Buffer];
  const hashes = [c, node(a, b), e];
  const root = node(node(node(a, b), node(c, leaf(body))), e);
  const logId = logIdOf(world, log);
  const integratedTime = Math.floor(at.getTime() / 1000);
  const promise = canonical({ body: b64(body), integratedTime, logID: logId.toString('hex'), logIndex: 1003 });
  const [name, version] = kind.split('/');
  return {
    logIndex: '1003',
    logId: { keyId: b64(logId) },
    kindVersion: { kind: name, version },
    ...(promised
      ? {
          integratedTime: String(integratedTime),
          inclusionPromise: { signedEntryTimestamp: b64(signWith(world.keys[log], promise)) },
        }
      : {}),
    inclusionProof: {
      logIndex: '3',
      rootHash: b64(root),
      treeSize: '5',
      hashes: hashes.map(b64),
      checkpoint: { envelope: checkpointOf(world, log, 5, root) },
    },
    canonicalizedBody: b64(body),
  };
}

// The bundle, and the root under which it verifies.

export interface BundleSpec {
  readonly payload: string;
  readonly said?: Said;
  readonly at: Date;
  /** dsse/0.0.1 in log1 with its promise, or hashedrekord/0.0.2 in log2 with a time authority's word. */
  readonly version?: 1 | 2;
  readonly leaf?: Partial<LeafSpec>;
  readonly log?: LogName;
  readonly stamps?: readonly ('right' | 'strange' | 'wrong' | 'other')[];
  /** In place of the leaf's own key. */
  readonly signer?: KeyObject;
  /** What the log's entry is about; the envelope itself by default. */
  readonly logged?: (envelope: Envelope) => Envelope;
  readonly entryAt?: Date;
  readonly stampedAt?: Date;
}

export type Bundle = ReturnType<typeof makeBundle>;

export function makeBundle(world: World, spec: BundleSpec) {
  const { at, version = 1, said = SAID, entryAt = at, stampedAt = at } = spec;
  const { log = version === 1 ? 'log1' : 'log2', stamps = version === 1 ? [] : ['right'] } = spec;
  const leaf = makeLeaf(world, said, { from: new Date(at.getTime() - MINUTE_MS), ...spec.leaf });
  const payload = Buffer.from(spec.payload);
  const signature = sign('sha256', paeOf(payload), spec.signer ?? leaf.key);
  const envelope = { payload, signature, certificate: leaf.certificate };
  const kind = version === 1 ? 'dsse/0.0.1' : 'hashedrekord/0.0.2';
  const body = bodyOf(kind, spec.logged?.(envelope) ?? envelope);
  return {
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    verificationMaterial: {
      certificate: { rawBytes: b64(leaf.certificate.der) },
      tlogEntries: [entryOf(world, log, kind, body, entryAt, version === 1)],
      timestampVerificationData: {
        rfc3161Timestamps: stamps.map((by) => ({
          signedTimestamp: b64(
            by === 'other' ? stamp(world, Buffer.from('another'), stampedAt) : stamp(world, signature, stampedAt, by),
          ),
        })),
      },
    },
    dsseEnvelope: { payload: b64(payload), payloadType: PAYLOAD_TYPE, signatures: [{ sig: b64(signature) }] },
  };
}

export interface RootSpec {
  readonly ends?: Partial<Record<'authority' | 'time' | 'log1' | 'log2' | 'certificates', string>>;
}

/** The trusted root of the world. */
export function rootOf(world: World, { ends = {} }: RootSpec = {}) {
  const period = (of: keyof NonNullable<RootSpec['ends']>) => ({
    start: START.toISOString(),
    ...(ends[of] === undefined ? {} : { end: ends[of] }),
  });
  const chain = (...holders: readonly Holder[]) => ({
    certificates: holders.map(({ certificate }) => ({ rawBytes: b64(certificate.der) })),
  });
  const log = (of: 'log1' | 'log2' | 'certificates') => {
    const key = createPublicKey(world.keys[of]);
    return {
      baseUrl: `https://${of === 'certificates' ? 'ct.example' : ORIGINS[of]}`,
      hashAlgorithm: 'SHA2_256',
      publicKey: {
        rawBytes: b64(spki(key)),
        keyDetails: KEYS[of] === 'Ed25519' ? 'PKIX_ED25519' : 'PKIX_ECDSA_P256_SHA_256',
        validFor: period(of),
      },
      logId: { keyId: b64(sha256(spki(key))) },
    };
  };
  const subject = { organization: 'release vectors', commonName: 'vectors' };
  return {
    mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
    tlogs: [log('log1'), log('log2')],
    certificateAuthorities: [
      { subject, uri: 'https://ca.example', certChain: chain(world.authority), validFor: period('authority') },
    ],
    ctlogs: [log('certificates')],
    timestampAuthorities: [
      {
        subject,
        uri: 'https://time.example',
        certChain: chain(world.time.signer, world.time.root),
        validFor: period('time'),
      },
    ],
  };
}

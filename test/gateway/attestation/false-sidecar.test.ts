// Nobody who answers on the socket is believed: what it says is checked before a client has it. A false sidecar can refuse, and no more.
import { chmodSync, chownSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { connectOwned } from '../../../gateway/attestation/sidecar-link.ts';
import type { Batch } from '../../../proto/attestation/batch.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import type { Collected } from '../../../sidecar/common/attester.ts';
import { makeLeaf, makeTree } from '../../../sidecar/signing/batches.ts';
import { verifyAttestation } from '../../../verify/index.ts';
import { never } from '../../support/attest.ts';
import { type Backend, chatStream, startBackend } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type FalseSidecar, type Lies, startFalseSidecar } from '../../support/false-sidecar.ts';
import {
  eventually,
  type Folder,
  type GatewaySettings,
  type RunningGateway,
  SILENT,
  startGateway,
  temporaryFolder,
} from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';

const TEE = { ...CHAT, tee: true };
const OTHER_UID = 65_534;
const asRoot = process.getuid?.() === 0;

let folder: Folder;
let backend: Backend;
let sidecar: FalseSidecar | null;
let gateway: RunningGateway | null;

beforeEach(async () => {
  folder = temporaryFolder();
  backend = await startBackend();
  sidecar = null;
  gateway = null;
});
afterEach(async () => {
  vi.restoreAllMocks();
  await gateway?.close();
  await sidecar?.close();
  await backend.close();
  folder.remove();
});

async function start({ limits, ...env }: GatewaySettings = {}, log = SILENT): Promise<string> {
  const SIDECAR_SOCKET = join(folder.path, 'sidecar.sock');
  const settings = { BACKEND_URL: backend.url, SIDECAR_SOCKET, ...env, limits: { sidecar_wait_ms: 500, ...limits } };
  gateway = await startGateway(settings, log);
  return gateway.url;
}
const health = async () => (await ask(`${gateway?.url}/health`, { method: 'GET' })).json().sidecar;

/** The first device's report, with one byte another. */
function turned({ token, evidence: [first, ...more] }: Collected, at: number): Collected {
  if (first === undefined) throw new Error('no evidence');
  const report = Buffer.from(first.report, 'base64');
  report.writeUInt8(report.readUInt8(report.length + at) ^ 1, report.length + at);
  return { token, evidence: [{ ...first, report: report.toString('base64') }, ...more] };
}
/** Signed for somebody else, earlier. */
const other = (_honest: Collected, _nonce: Nonce, twin: FalseSidecar['twin']) =>
  twin.attest('cd'.repeat(32) as Nonce, never);
const ownRoot = async (honest: Collected, nonce: Nonce) => {
  const mine = await createSimulatedAttester({ rootDir: join(folder.path, 'another-root') });
  return { ...honest, evidence: (await mine.attest(nonce, never)).evidence };
};

const LIES: readonly [string, Lies, string][] = [
  ['everything replayed from another answer', { answer: other }, 'token_nonce_mismatch'],
  [
    "a GPU's report replayed, beside a token of its own making",
    { answer: async (honest, nonce, twin) => ({ ...honest, evidence: (await other(honest, nonce, twin)).evidence }) },
    'report_nonce_mismatch',
  ],
  [
    'a token replayed beside a right report',
    { answer: async (honest, nonce, twin) => ({ ...honest, token: (await other(honest, nonce, twin)).token }) },
    'token_nonce_mismatch',
  ],
  ['a signature with one bit turned', { answer: (honest) => turned(honest, -1) }, 'report_signature_invalid'],
  [
    'a report that was changed after it was signed',
    { answer: (honest) => turned(honest, -200) },
    'report_signature_invalid',
  ],
  ['a GPU under a root of its own', { answer: ownRoot }, 'untrusted_root'],
  ["the twin's GPU, and a hello that calls it a real one", { hello: { simulated: null } }, 'untrusted_root'],
  [
    'one GPU as two',
    { answer: ({ token, evidence }) => ({ token, evidence: [...evidence, ...evidence] }) },
    'evidence_malformed',
  ],
  [
    'one of two GPUs signed for another answer',
    {
      devices: 2,
      answer: async (honest, nonce, twin) => ({
        ...honest,
        evidence: [...honest.evidence.slice(0, 1), ...(await other(honest, nonce, twin)).evidence.slice(1)],
      }),
    },
    'report_nonce_mismatch',
  ],
  [
    'what is no certificate chain',
    {
      answer: ({ token, evidence }) => ({
        token,
        evidence: evidence.map((one) => ({ ...one, certificate_chain: 'AAAA' })),
      }),
    },
    'evidence_malformed',
  ],
];

/** A tree of this digest and of another, with the proof that a change makes of the right one. */
const inTree =
  (change: (own: Batch, other: Batch) => Batch) =>
  (digest: Nonce): { nonce: Nonce; batch: Batch } => {
    // Four: the paths of all leaves are equally long.
    const others = ['01', '02', '03'].map((one) => makeLeaf(one.repeat(32) as Nonce));
    const leaves = [makeLeaf(digest), ...others] as const;
    const { nonce, proofs } = makeTree(leaves);
    const [own, other] = leaves.map((leaf) => proofs.get(leaf) as Batch);
    return { nonce, batch: change(own as Batch, other as Batch) };
  };
const honestly = inTree((own) => own);
const BATCH_LIES: readonly [string, Lies['batch'], string][] = [
  ["another's path", inTree((own, other) => ({ ...own, path: other.path })), 'batch_proof_invalid'],
  ["another's whole proof", inTree((_, other) => other), 'batch_proof_invalid'],
  ['a proof with another salt', inTree((own) => ({ ...own, salt: 'ab'.repeat(32) })), 'batch_proof_invalid'],
  ['a smaller tree', inTree((own) => ({ ...own, leaf_index: 0, tree_size: 1, path: [] })), 'batch_proof_invalid'],
  ['a path that is too long', inTree((own) => ({ ...own, path: [...own.path, 'ab'.repeat(32)] })), 'batch_malformed'],
  ['a place beyond the tree', inTree((own) => ({ ...own, leaf_index: 4 })), 'batch_malformed'],
];

describe('a false sidecar, asked for an answer that may share a signature,', () => {
  const SHARED = { ...CHAT, tee: { batch: true } };

  it('that tells no lie is believed', async () => {
    sidecar = await startFalseSidecar(folder, { batch: honestly });
    const got = await chat(await start(), SHARED);
    expect([got.status, got.headers['x-tee-batch']]).toEqual([200, '4']);
  });

  it.each(BATCH_LIES)('that sends %s is refused', async (_what, batch, code) => {
    sidecar = await startFalseSidecar(folder, batch === undefined ? {} : { batch });
    expectError(await chat(await start(), SHARED), 503, 'attestation_unavailable');
    expect(await health()).toMatchObject({ status: 'refused', refused: { code } });
  });

  it('is refused where it puts an answer into a batch that is to have its own', async () => {
    sidecar = await startFalseSidecar(folder, { batch: honestly });
    expectError(await chat(await start(), TEE), 503, 'attestation_unavailable');
    expect(await health()).toMatchObject({ status: 'refused', refused: { code: 'batch_refused' } });
  });
});

describe('a false sidecar', () => {
  it('that tells no lie is believed: its answer verifies', async () => {
    sidecar = await startFalseSidecar(folder, { devices: 2 });
    const got = await chat(await start(), TEE);
    expect(got.status).toBe(200);
    const simulatedRoot = sidecar.twin.simulated?.root ?? '';
    const verified = await verifyAttestation(got.text, {
      simulatedRoot,
      without: { referenceValues: true, revocation: true },
    });
    expect(verified.valid).toBe(true);
  });

  it.each(LIES)('that sends %s is refused, and its answer reaches nobody', async (_what, lies, code) => {
    sidecar = await startFalseSidecar(folder, lies);
    const lines: string[] = [];
    const url = await start({}, pino({ level: 'info' }, { write: (line: string) => void lines.push(line) }));
    const got = await chat(url, TEE);
    expectError(got, 503, 'attestation_unavailable');
    expect(got.headers['retry-after']).toBeDefined();
    expect(got.json().error.message).toMatch(/^The sidecar’s attestation failed a check: /);
    expect(await health()).toMatchObject({ status: 'refused', attester: null, refused: { code } });
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ msg: 'sidecar', state: 'refused', code }),
    );
    const { text } = await ask(`${url}/metrics`, { method: 'GET' });
    expect(parseSamples(text).value('countersign_sidecar_refusals_total', { code })).toBe(1);
    // The next one is told before the backend is asked.
    const asked = backend.seen.length;
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(backend.seen).toHaveLength(asked);
    expect((await chat(url, CHAT)).status).toBe(200);
  });

  it('ends a stream in an error, and never in "stop"', async () => {
    sidecar = await startFalseSidecar(folder, { answer: other });
    backend.script = chatStream(['a', 'b']);
    const got = await chat(await start(), { ...TEE, stream: true });
    const last = JSON.parse(
      got
        .payloads()
        .filter((one) => one !== '[DONE]')
        .at(-1) ?? '',
    );
    expect(last.error.code).toBe('attestation_unavailable');
    expect(got.text).not.toContain('"finish_reason":"stop"');
    expect(got.text).not.toContain('"attestation"');
  });

  it('is looked at again, and an honest one in its place is believed', async () => {
    sidecar = await startFalseSidecar(folder, { answer: other });
    const url = await start({ limits: { sidecar_wait_ms: 20_000 } });
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    await sidecar.close();
    sidecar = await startFalseSidecar(folder);
    expect((await chat(url, TEE)).status).toBe(200);
    expect(await health()).toMatchObject({ status: 'connected', refused: null });
  });

  it('that asks to be asked again at once is not asked without a pause', async () => {
    sidecar = await startFalseSidecar(folder, {
      failed: { code: 'queue_full', message: 'full', retry_after_ms: 0 },
    });
    expectError(await chat(await start({ ATTEST_TIMEOUT_MS: '1500' }), TEE), 503, 'attestation_unavailable');
    expect(sidecar.seen.asked).toBeGreaterThan(2);
    expect(sidecar.seen.asked).toBeLessThan(9);
  });

  it.each([
    ['nothing of signers', {}, 2],
    ['of four signers', { signers: 4 }, 5],
  ])('that says %s is asked for so many at once', async (_name, hello, at_once) => {
    let [now, most] = [0, 0];
    const answer = async (honest: Collected) => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setTimeout(resolve, 100));
      now--;
      return honest;
    };
    sidecar = await startFalseSidecar(folder, { hello, answer });
    const url = await start();
    expect((await chat(url, TEE)).status).toBe(200);
    const got = await Promise.all(Array.from({ length: 12 }, (_, i) => chat(url, { ...TEE, user: `${i}` })));
    expect(got.map(({ status }) => status)).toEqual(Array(12).fill(200));
    expect(most).toBe(at_once);
  });

  it('that greets and leaves, over and over, is not connected to without a pause', async () => {
    sidecar = await startFalseSidecar(folder, { leaves: true });
    await start();
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(sidecar.seen.connections).toBeGreaterThan(2);
    expect(sidecar.seen.connections).toBeLessThan(14);
  });
});

describe('the socket', () => {
  let server: Server | null = null;
  afterEach(() => {
    server?.close();
    server = null;
  });
  const place = () => join(folder.path, 'of-its-own');
  const path = () => join(place(), 's.sock');
  /** In a folder 0750, with mode 0660: as a sidecar makes it. */
  async function listen(): Promise<void> {
    mkdirSync(place(), { mode: 0o700 });
    chmodSync(place(), 0o750);
    server = createServer((one) => one.on('error', () => {}));
    await new Promise<void>((resolve) => server?.listen(path(), resolve));
    chmodSync(path(), 0o660);
  }
  /** Without root's rights, it is the gateway that is somebody else. */
  const giveAway = (what: string) =>
    asRoot ? chownSync(what, OTHER_UID, OTHER_UID) : void vi.spyOn(process, 'getuid').mockReturnValue(OTHER_UID);
  const ownerUid = asRoot ? OTHER_UID : (process.getuid?.() ?? 0);

  const connected = (sidecar_uid: number | null = null) =>
    new Promise<void>((resolve, reject) => {
      const socket = connectOwned(path(), sidecar_uid);
      socket.once('error', reject).once('connect', () => resolve(void socket.destroy()));
    });

  it('of the gateway itself is connected to, wherever its folder lies', async () => {
    chmodSync(folder.path, 0o1777);
    await listen();
    await connected();
    // Through the folder that was looked at, by whatever name.
    renameSync(place(), join(folder.path, 'moved'));
    symlinkSync(join(folder.path, 'moved'), place());
    await connected();
  });

  it.each([
    ['folder', place],
    ['socket', path],
  ])('is refused where the %s is another user’s, except for the one who is named', async (_, what) => {
    await listen();
    giveAway(what());
    await expect(connected()).rejects.toMatchObject({ name: 'SocketRefused', code: 'socket_owner' });
    await expect(connected(ownerUid + 1)).rejects.toMatchObject({ code: 'socket_owner' });
    await connected(ownerUid);
  });

  it.each(['770', '757', '1777'])('is refused in a folder with mode %s', async (mode) => {
    await listen();
    chmodSync(place(), mode);
    await expect(connected()).rejects.toMatchObject({ code: 'socket_mode' });
  });

  it('is refused where everybody may connect to it, and where it is none', async () => {
    await listen();
    chmodSync(path(), 0o666);
    await expect(connected()).rejects.toMatchObject({ code: 'socket_mode' });
    rmSync(path());
    writeFileSync(path(), '');
    await expect(connected()).rejects.toMatchObject({ code: 'socket_kind' });
    rmSync(path());
    await expect(connected()).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('that another user put in its place is told nothing, and /health and the client learn why', async () => {
    sidecar = await startFalseSidecar(folder);
    giveAway(folder.path);
    const url = await start();
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(await health()).toMatchObject({ status: 'refused', refused: { code: 'socket_owner' } });
    expect(JSON.stringify(await health())).not.toContain(folder.path);
    expect(sidecar.seen).toEqual({ connections: 0, asked: 0 });
    expect(backend.seen.filter(({ method }) => method === 'POST')).toEqual([]);
    await gateway?.close();
    await start({ SIDECAR_UID: String(ownerUid) });
    await eventually(async () => (await health()).status === 'connected');
  });
});

// Attestations by simulated GPUs, right by default; a test changes what it is about.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { chainPem, DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../demo/twin/pki.ts';
import { makeToken } from '../../demo/twin/token.ts';
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { Batch } from '../../proto/attestation/batch.ts';
import { buildRaw, type RawParts, sha256Hex } from '../../proto/attestation/raw.ts';
import { leafOf, nonceOver, pathOf, rootOf, sha256 } from '../../scripts/vectors/tree.ts';
import { makeReport } from '../twin/report.ts';

export const AT = new Date('2025-06-01T12:00:00Z');
export const SECONDS = Math.floor(AT.getTime() / 1000);

export const root = makeRoot(DEVICE_ROOT);
export const simulatedRoot = root.certificate.pem;
export const issuers = makeIssuers(root);
export const a = makeDevice(issuers);
export const b = makeDevice(issuers);

export const REQUEST =
  '{"model": "m", "messages":[{"role":"user","content":"Hi \\u00e9 1.0"}],"seed":12345678901234567890,"tee":true}';
export const RESPONSE =
  '{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}';
export const EXCHANGE: RawParts = { request: REQUEST, response: RESPONSE, timestamp: SECONDS - 10 };

export async function evidenceOf(nonce: string, device: Device) {
  const report = await makeReport(Buffer.from(nonce, 'hex'), device.key);
  return {
    arch: 'HOPPER',
    report: report.toString('base64'),
    certificate_chain: Buffer.from(chainPem(device)).toString('base64'),
  };
}

export interface Made {
  raw: string;
  nonce: string;
  token: string;
  evidence: Evidence[];
}

export async function attest(parts: RawParts = EXCHANGE, devices: readonly Device[] = [a]): Promise<Made> {
  const raw = buildRaw(parts);
  return signed(raw, await sha256Hex(raw), devices);
}

/** The exchange among others', under one nonce. */
export async function attestInBatch(
  tree_size: number,
  leaf_index: number,
  parts: RawParts = EXCHANGE,
  devices: readonly Device[] = [a],
): Promise<Made & { batch: Batch }> {
  const raw = buildRaw(parts);
  const { nonce, batch } = batchOf(raw, tree_size, leaf_index);
  return { ...(await signed(raw, nonce, devices)), batch };
}

/** A place for raw in a tree of others, and the nonce that is to be signed. */
export function batchOf(raw: string, tree_size: number, leaf_index: number): { nonce: string; batch: Batch } {
  const salt = randomBytes(32);
  const leaves: Buffer[] = Array.from({ length: tree_size }, () => randomBytes(32));
  leaves[leaf_index] = leafOf(salt, sha256(raw));
  const path = pathOf(leaf_index, leaves).map((hash) => hash.toString('hex'));
  const batch = { salt: salt.toString('hex'), leaf_index, tree_size, path };
  return { nonce: nonceOver(tree_size, rootOf(leaves)), batch };
}

async function signed(raw: string, nonce: string, devices: readonly Device[]): Promise<Made> {
  return {
    raw,
    nonce,
    token: makeToken(nonce, devices, AT),
    evidence: await Promise.all(devices.map((device) => evidenceOf(nonce, device))),
  };
}

const chunk = (delta: string, finish: string | null) =>
  `{"id":"c2","object":"chat.completion.chunk","choices":[{"index":0,"delta":${delta},"finish_reason":${JSON.stringify(finish)}}]}`;

export const PAYLOADS = [
  chunk('{"role":"assistant","content":"Hel"}', null),
  chunk('{"content":"lo. \u00e9"}', null),
  chunk('{}', 'stop'),
];
export const FOLDED =
  '{"id":"c2","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello. \u00e9"},"finish_reason":"stop"}]}';

export async function streamed(payloads: readonly string[] = PAYLOADS): Promise<RawParts> {
  const sha256 = await sha256Hex(payloads.map((payload) => `${payload}\n`).join(''));
  return { ...EXCHANGE, response: FOLDED, stream: { events: payloads.length, sha256 } };
}

/** What a client saved: the attestation in the last payload, then the end. */
export function transcript(
  attestation: unknown,
  payloads: readonly string[] = PAYLOADS,
  newline = '\n',
): Uint8Array<ArrayBuffer> {
  const carried = payloads.map((payload, i) =>
    i < payloads.length - 1 ? payload : payload.replace(/\}$/, `,"attestation":${JSON.stringify(attestation)}}`),
  );
  const events = [': attesting', ...[...carried, '[DONE]'].map((payload) => `data: ${payload}`)];
  return new TextEncoder().encode(events.map((event) => `${event}${newline}${newline}`).join(''));
}

export const serviceKey = () => generateKeyPairSync('ec', { namedCurve: 'P-384' });

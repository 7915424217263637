// A gateway of a few lines for tests of anybody who seals to one: its sessions, what it opens, what it answers, and the bytes of both, as a fetch.
import { randomBytes } from 'node:crypto';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { type Bytes, joined } from '../../sealed/byte-source.ts';
import {
  chunksOf,
  type Field,
  isFor,
  MAX_CHUNK_BYTES,
  makeKeys,
  nonceBytes,
  type OpeningKeys,
  openRequest,
  RESPONSE_MEDIA_TYPE,
  type RequestHead,
  ResponseSealer,
  readRequest,
  readRequestHeader,
  responseKeys,
  writeContent,
  writeEnd,
  writeResponseHead,
} from '../../sealed/index.ts';
import { all } from '../sealed/chunks.ts';
import { secrets } from '../sealed/suites.ts';
import { AT } from '../verify/maker.ts';
import { type MadeSession, makeSession, type SessionSpec } from '../verify/session-maker.ts';

/** What was opened. */
export interface Opened extends RequestHead {
  readonly body: string;
  /** Bytes of the whole message, padding included. */
  readonly length: number;
  readonly key_id: number;
}

export interface Plain {
  readonly status?: number;
  readonly fields?: readonly Field[];
  /** A write of the backend each. */
  readonly chunks?: readonly string[];
}

export interface Origin {
  readonly url: string;
  /** Everything that was asked for, and its body's bytes. */
  readonly sent: { readonly url: string; readonly headers: Headers; readonly body: Bytes }[];
  readonly opened: Opened[];
  /** The answer to what is opened from now on. */
  answer: Plain | ((opened: Opened) => Promise<Plain>);
  readonly fetch: typeof globalThis.fetch;
  /** Sessions from now on have other keys, and `spec`; the keys before are forgotten. */
  renew(spec?: SessionSpec): Promise<void>;
  /** The session that was handed out last. */
  session(): MadeSession;
  /** Seals an answer to a sealed request. */
  seal(body: Uint8Array, plain: Plain): Promise<Uint8Array[]>;
}

export async function makeOrigin(spec: SessionSpec = {}, first_id = 7): Promise<Origin> {
  let keys: OpeningKeys;
  let own = spec;
  let id = first_id;
  let handedOut: MadeSession;

  async function renew(next: SessionSpec = own): Promise<void> {
    own = next;
    keys = await makeKeys(id, secrets());
    id = (id + 2) % 256;
  }
  await renew();

  async function open(body: Uint8Array) {
    const header = await readRequestHeader(these(body));
    const key = keys.keys.find((one) => isFor(header, one));
    if (key === undefined) return null;
    const { chunks, secret } = await openRequest(header, key);
    const message = await all(chunks);
    const { head, content } = await readRequest(these(message));
    const opened: Opened = {
      ...head,
      body: Buffer.from(await all(content)).toString(),
      length: message.length,
      key_id: header.key_id,
    };
    return { opened, secret };
  }

  async function seal(body: Uint8Array, { status = 200, fields = [], chunks = [] }: Plain): Promise<Uint8Array[]> {
    const found = await open(body);
    if (found === null) throw new Error('no key for this request');
    const secrets = await responseKeys(found.secret, randomBytes(nonceBytes(found.secret)));
    const sealer = new ResponseSealer(secrets, encryptWith(secrets.key));
    const parts = [writeResponseHead({ status, fields }), ...chunks.map((one) => writeContent(Buffer.from(one)))];
    const sealed = parts.flatMap(cut).map((part) => joined(sealer.seal(part, false)));
    return [...sealed, joined(sealer.seal(writeEnd(), true))];
  }

  const origin: Origin = {
    url: 'https://gateway.example',
    sent: [],
    opened: [],
    answer: { fields: [['content-type', 'application/json']], chunks: ['{"ok":true}'] },
    renew,
    session: () => handedOut,
    seal,
    async fetch(input, init) {
      const request = new Request(input, init);
      const body = new Uint8Array(await request.arrayBuffer());
      origin.sent.push({ url: request.url, headers: request.headers, body });
      const { pathname, searchParams } = new URL(request.url);
      if (pathname === '/v1/attestation/session') {
        const hpke = Buffer.from(keys.document).toString('base64');
        handedOut = await makeSession({
          ...own,
          statement: { hpke, challenge: searchParams.get('challenge'), ...own.statement },
        });
        return Response.json({ ...handedOut.cpu, gpu: handedOut.gpu });
      }
      const found = await open(body);
      if (found === null) return Response.json({ error: { code: 'sealed_key_unknown' } }, { status: 422 });
      origin.opened.push(found.opened);
      const plain = typeof origin.answer === 'function' ? await origin.answer(found.opened) : origin.answer;
      return sealedResponse(await seal(body, plain));
    },
  };
  return origin;
}

const cut = (part: Uint8Array): Uint8Array[] =>
  Array.from({ length: Math.ceil(part.length / MAX_CHUNK_BYTES) }, (_, i) =>
    part.subarray(i * MAX_CHUNK_BYTES, (i + 1) * MAX_CHUNK_BYTES),
  );

/** The instant of its sessions and proofs. */
export const now_ms = () => AT.getTime();

export const sealedResponse = (chunks: readonly Uint8Array[]): Response =>
  new Response(joined(chunks), { headers: { 'content-type': RESPONSE_MEDIA_TYPE } });

export const bytesOf = async (response: Response): Promise<Uint8Array> =>
  all(chunksOf(response.body as ReadableStream<Uint8Array>));

async function* these(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array, void, undefined> {
  yield* chunks;
}

// The readers of sealed/, and what the gateway reads of a request that was opened.
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { checkDate, headOf, IncomingChunks, openedRequest } from '../../gateway/sealing/opened-request.ts';
import {
  chooseKey,
  type Message,
  openRequest,
  readRequest,
  readRequestHeader,
  readResponse,
} from '../../sealed/index.ts';
import { readKeys } from '../../sealed/keys.ts';
import { openResponse } from '../../sealed/response.ts';
import { these } from '../sealed/chunks.ts';
import { OPENING_KEY, RESPONSE_SECRET } from './formats-sealed.ts';
import { inChunks, type Reader, reader } from './reader.ts';

/** So that none of them ends the reading early. */
const LIMITS = { max_head_bytes: 1 << 26, max_fields: 1 << 26, max_padding_bytes: 1 << 26 };
const SIZES = [1, 64, Number.POSITIVE_INFINITY];

async function drained(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of chunks);
}
const contentOf = <Head>({ content }: Message<Head>) => drained(content);

export const sealedReaders: readonly Reader[] = [
  ...inChunks(
    'sealed/binary-http: readRequest',
    ['sealed requests, opened'],
    async (pieces) => contentOf(await readRequest(these(...pieces), LIMITS)),
    SIZES,
  ),
  ...inChunks(
    'sealed/binary-http: readResponse',
    ['sealed responses, opened'],
    async (pieces) => contentOf(await readResponse(these(...pieces), LIMITS)),
    SIZES,
  ),
  reader('sealed/keys: readKeys', ['documents of keys'], ({ bytes }) => readKeys(bytes)),
  reader('sealed/keys: chooseKey', ['documents of keys'], ({ bytes }) => chooseKey(bytes)),
  ...inChunks(
    'sealed/request: openRequest',
    ['sealed requests'],
    async (pieces) => {
      const { chunks } = await openRequest(await readRequestHeader(these(...pieces)), OPENING_KEY);
      await drained(chunks);
    },
    SIZES,
  ),
  ...inChunks(
    'sealed/response: openResponse',
    ['sealed responses'],
    (pieces) => drained(openResponse(RESPONSE_SECRET, these(...pieces))),
    SIZES,
  ),
  ...inChunks(
    'gateway/sealing/opened-request',
    ['sealed requests, opened'],
    async (pieces) => {
      const incoming = Readable.from(pieces, { objectMode: false }) as unknown as IncomingMessage;
      const message = await readRequest(new IncomingChunks(incoming), LIMITS);
      const head = headOf(message.head);
      await drained(await openedRequest(head, message));
      checkDate(head.headers, 0);
    },
    [7, Number.POSITIVE_INFINITY],
  ),
];

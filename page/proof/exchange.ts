// The raw request and response side by side, how they were put together, and the number they hash to.
import { sha256Hex } from '../../proto/attestation/raw.ts';
import { batchNonce, readBatch } from '../../verify/binding/batch.ts';
import type { Attestation } from '../../verify/index.ts';
import { el } from '../base/dom.ts';
import { partsOf, type Subject } from './subject.ts';

/** More than this is not laid out; the download has it all. */
const MAX_SHOWN = 100_000;

export function exchangeView(subject: Subject, attestation: Attestation): HTMLDetailsElement {
  const { raw, nonce, batch } = attestation;
  const parts = partsOf(raw);
  const computed = el('code', { class: 'hash' }, '…');
  const led = el('code', { class: 'hash' }, '…');
  void sha256Hex(raw).then(async (hash) => {
    computed.textContent = hash;
    const last = batch === undefined ? computed : led;
    last.textContent = batch === undefined ? hash : await nonceByPath(hash, batch);
    last.classList.toggle('differs', last.textContent !== nonce);
  });
  const pane = (title: string, kind: string, text: string, note: string) =>
    el(
      'figure',
      { class: `pane ${kind}` },
      el('figcaption', {}, el('strong', {}, title), ` ${note}`),
      el('pre', { tabindex: 0, 'aria-label': title }, shortened(text)),
    );
  const bytes = (text: string) => `${new TextEncoder().encode(text).length.toLocaleString('en')} bytes`;
  const end = parts === null ? '' : tailOf(raw, parts.response);
  return el(
    'details',
    { class: 'fold exchange' },
    el('summary', {}, 'What was hashed: request and response, byte for byte'),
    ...(parts === null
      ? [pane('raw', 'whole', raw, bytes(raw))]
      : [
          el(
            'div',
            { class: 'panes' },
            pane(
              'Request',
              'request',
              parts.request,
              subject.request === parts.request
                ? `${bytes(parts.request)}, as this page sent it`
                : bytes(parts.request),
            ),
            pane(
              'Response',
              'response',
              parts.response,
              parts.stream === undefined
                ? `${bytes(parts.response)}, as the backend sent it`
                : `${bytes(parts.response)}, what ${parts.stream.events} events of the stream fold into`,
            ),
          ),
          el(
            'p',
            { class: 'recipe' },
            'These bytes, in this order, and no others: ',
            el(
              'code',
              {},
              raw.slice(0, raw.indexOf('"request":') + '"request":'.length),
              el('mark', { class: 'request' }, 'request'),
              ',"response":',
              el('mark', { class: 'response' }, 'response'),
              end,
            ),
          ),
        ]),
    el(
      'dl',
      { class: 'hashes' },
      el('dt', {}, 'SHA-256, computed in this browser'),
      el('dd', {}, computed),
      ...(batch === undefined ? [] : [el('dt', {}, 'Nonce to which its path leads from there'), el('dd', {}, led)]),
      el('dt', {}, 'Nonce, as the attestation states it'),
      el('dd', {}, el('code', { class: 'hash' }, nonce)),
    ),
    carrierView(subject, attestation),
  );
}

async function nonceByPath(hash: string, batch: unknown): Promise<string> {
  try {
    return await batchNonce(hash, readBatch(batch));
  } catch {
    return 'nothing: it is no path';
  }
}

function tailOf(raw: string, response: string): string {
  return raw.slice(raw.lastIndexOf(response) + response.length);
}

function shortened(text: string): string {
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)} … (${text.length - MAX_SHOWN} more characters)`;
}

/** The attestation as it travelled: in the stream's finish chunk, or in a whole response. */
function carrierView(
  { text, transcript, expanded }: Subject,
  { raw, nonce, token, evidence = [] }: Attestation,
): HTMLElement {
  const where =
    transcript !== null
      ? 'the chunk that ends the stream'
      : text.includes('"attestation"')
        ? 'the response'
        : 'a text of its own';
  const title = expanded === true ? 'The attestation, with what its bundle holds' : 'The attestation as it came';
  const sizes: [string, string][] = [
    ['raw', `${raw.length.toLocaleString('en')} characters: the text above`],
    ['nonce', nonce],
    ['token', `${token.length.toLocaleString('en')} characters`],
    ...evidence.map(({ arch, report, certificate_chain }, i): [string, string] => [
      `evidence[${i}]`,
      `${arch}: a report of ${base64Bytes(report)} bytes, certificates of ${base64Bytes(certificate_chain)} bytes`,
    ]),
  ];
  return el(
    'details',
    { class: 'fold inner' },
    el('summary', {}, `${title}, in ${where}`),
    el(
      'dl',
      { class: 'members' },
      ...sizes.flatMap(([name, value]) => [el('dt', {}, el('code', {}, name)), el('dd', {}, value)]),
    ),
    el('pre', { tabindex: 0, 'aria-label': title }, shortened(text)),
  );
}

const base64Bytes = (text: string) => Math.floor((text.replace(/=+$/, '').length * 3) / 4).toLocaleString('en');

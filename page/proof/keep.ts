// What to take along: the files, and the command that checks them without this page.

import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import { PUBLISHED } from '../../verify/common/version.ts';
import type { Attestation } from '../../verify/index.ts';
import { copyButton } from '../base/copy.ts';
import { el } from '../base/dom.ts';
import { hasKey } from '../base/gateway.ts';
import type { Subject } from './subject.ts';

/** A visitor's own verifier, which is not this gateway's: in a copy of the repository until the package is published. */
export const OWN_VERIFIER = PUBLISHED ? 'npx @countersign/verify' : 'npm run -s verify --';

export function keepView(
  subject: Subject,
  attestation: Attestation | null,
  simulated: boolean,
  release: ReleaseOptions | null,
): HTMLElement {
  const { kind, name, transcript, request, text } = subject;
  const stream = `${name}.sse`;
  const alone = `${name}.json`;
  const file = transcript === null ? alone : stream;
  const command = kind === 'attestation' ? '' : `${kind} `;
  const root = simulated ? ' --allow-simulated run/simulated-root/root.pem' : '';
  const sent = request === null || kind !== 'attestation' ? '' : ` --request ${name}-request.json`;
  const compared = kind === 'attestation' || kind === 'session' ? releaseWords(release) : '';
  return el(
    'section',
    { class: 'keep' },
    el(
      'p',
      { class: 'actions' },
      download('Download the attestation', alone, attestation === null ? text : JSON.stringify(attestation)),
      transcript === null ? null : download('the stream', stream, transcript),
      request === null ? null : download('the request', `${name}-request.json`, request),
      attestation === null ? null : copyButton('Copy the attestation', () => JSON.stringify(attestation)),
      request === null ? null : copyButton('Copy as curl', () => curlOf(request)),
    ),
    el(
      'p',
      { class: 'meaning' },
      'To check it without this page: ',
      el('code', {}, `${OWN_VERIFIER} ${command}${file}${sent}${root}${compared}`),
    ),
  );
}

function releaseWords(release: ReleaseOptions | null): string {
  if (release === null) return '';
  const { repository, tag, trustedRoot } = release;
  const root = trustedRoot === undefined ? '' : ' --trusted-root FILE';
  return ` --release ${repository}${tag === undefined ? '' : `@${tag}`} --gateway ${location.origin}${root}`;
}

/** The same request, for a shell. */
function curlOf(request: string): string {
  const quoted = `'${request.replaceAll("'", "'\\''")}'`;
  const endpoint = `${location.origin}/v1/chat/completions`;
  const key = hasKey() ? ' -H "authorization: Bearer $API_KEY"' : '';
  return `curl -sN ${endpoint} -H 'content-type: application/json'${key} -d ${quoted}`;
}

export function download(
  label: string,
  name: string,
  data: string | Uint8Array<ArrayBuffer>,
  look: 'quiet' | 'small' = 'quiet',
): HTMLElement {
  const save = () => {
    const url = URL.createObjectURL(new Blob([data], { type: 'application/octet-stream' }));
    const link = el('a', { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return el('button', { type: 'button', class: look, on: { click: save } }, label);
}

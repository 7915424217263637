// The view that checks what was kept: a file, a text or an address is read and checked in this page, and sent nowhere.
import { byId, el } from '../base/dom.ts';
import { keepBundle, wholeOf } from '../proof/bundles.ts';
import { isLink, proofIn } from '../proof/link.ts';
import { createProof } from '../proof/proof.ts';
import { attestationIn, MAX_INPUT_BYTES, mayBeProof, readStored, textOf } from '../proof/subject.ts';
import type { Settings } from '../proof/verifier.ts';
import { EMPTY, FOLDER, foreign, type Refusal, TOO_LARGE, UNREADABLE } from './foreign.ts';
import { createReleaseField, RELEASE } from './release.ts';
import { signedConversation } from './signed.ts';

type Bytes = Uint8Array<ArrayBuffer>;

interface Read {
  readonly name: string;
  readonly bytes: Bytes;
}

const OPTIONAL = 'The request is optional: add it before the file.';
const SEVERAL: Refusal = {
  is: 'is more than one proof',
  next: 'Choose one file with a proof and, if you have it, the request.',
};
const BUNDLE: Refusal = {
  is: 'is a bundle, which this page keeps until it is closed',
  next: 'Choose the proof that names it now.',
};
const NOTHING_PASTED: Refusal = { is: 'is empty', next: 'Paste the text of a proof first, or choose its file.' };
const BAD_LINK: Readonly<Record<'damaged' | 'too_large', Refusal>> = {
  damaged: { is: 'is cut off or damaged: no proof can be read from it', next: 'Copy it again, whole.' },
  too_large: { is: 'unpacks to more than the 4 MiB that a link of this page holds', next: 'Ask for the file instead.' },
};

/** @param open brings the view forward, for a file that is dropped anywhere. */
export function createCheck(settings: () => Settings, refresh: () => Promise<void>, open: () => void): void {
  const form = byId<HTMLFormElement>('drop');
  const file = byId<HTMLInputElement>('file');
  const sent = byId<HTMLInputElement>('sent');
  const paste = byId<HTMLTextAreaElement>('paste');
  const problem = byId('drop-problem');
  const checked = byId('checked');
  const releaseField = createReleaseField();
  let newest = 0;

  /** Clears what was shown of the one before. @returns whether this is still the newest. */
  function begin(): () => boolean {
    const mine = ++newest;
    problem.hidden = true;
    problem.replaceChildren();
    checked.replaceChildren();
    scrollTo(0, 0);
    return () => mine === newest;
  }
  async function check(bytes: Bytes, name: string, label: string, sent: Read | null): Promise<void> {
    const isNewest = begin();
    const read = readStored(bytes, name, sent === null ? null : textOf(sent.bytes));
    const [subject, release] = await Promise.all([wholeOf(read), releaseField.read()]);
    if (!isNewest()) return;
    if (release !== null && 'is' in release) return refuse(release.name, release);
    const all = () => ({ ...settings(), release });
    const heading = sent === null ? label : `${label}, with ${sent.name}`;
    const attestation = attestationIn(subject);
    const signed = attestation === null ? null : signedConversation(attestation.raw);
    const proof = createProof(subject, signed?.bubbles ?? null, { open: true });
    const show = () => checked.replaceChildren(el('h2', {}, heading), proof.element, signed?.element ?? '');
    // What may be no proof is looked at first: then only what it is instead is shown.
    if (attestation !== null || subject.kind !== 'attestation') show();
    const known = await proof.run(all());
    if (!isNewest()) return;
    if (proof.element.dataset.verdict === 'foreign') {
      checked.replaceChildren();
      return refuse(label, foreign(bytes));
    }
    show();
    if (!known) {
      await refresh();
      await proof.run(all());
    }
    if (isNewest()) proof.element.querySelector<HTMLElement>('.verdict-title')?.focus({ preventScroll: true });
  }
  async function checkFiles(files: readonly File[]): Promise<void> {
    const isNewest = begin();
    const read = await Promise.all([...files, ...(sent.files ?? [])].slice(0, 4).map(bytesOf));
    forget();
    if (!isNewest()) return;
    const refused = read.find((one) => 'is' in one);
    if (refused !== undefined && 'is' in refused) return refuse(refused.name, refused);
    const contents: Read[] = [];
    let kept = BUNDLE;
    for (const one of read) {
      if (!('bytes' in one) || (await keepBundle(one.bytes))) continue;
      if (await releaseField.keep(one.bytes)) kept = RELEASE;
      else contents.push(one);
    }
    if (!isNewest()) return;
    const [proof] = [...contents.filter(({ bytes }) => mayBeProof(bytes)), ...contents];
    if (proof === undefined) return refuse(read[0]?.name ?? 'This', kept);
    const others = contents.filter((one) => one !== proof);
    if (others.length > 1) return refuse('This', SEVERAL);
    await check(proof.bytes, proof.name.replace(/\.\w+$/, ''), proof.name, others[0] ?? null);
  }
  /** Empties the fields, so that nothing of this file stands beside the next, and the same file can be chosen again. */
  function forget(): void {
    file.value = sent.value = paste.value = '';
    nameRequest();
    leaveLink();
  }
  function nameRequest(): void {
    byId('sent-name').textContent = sent.files?.[0]?.name ?? OPTIONAL;
  }
  async function checkPasted(): Promise<void> {
    const isNewest = begin();
    const text = paste.value;
    if (text.trim() === '') return refuse('The box', NOTHING_PASTED);
    const [request] = await Promise.all([...(sent.files ?? [])].map(bytesOf));
    if (!isNewest()) return;
    if (request !== undefined && 'is' in request) return refuse(request.name, request);
    leaveLink();
    await check(new TextEncoder().encode(text), 'pasted', 'What you pasted', request ?? null);
  }
  async function checkAddress(): Promise<void> {
    if (!isLink(location.hash)) return;
    const isNewest = begin();
    const bytes = await proofIn(location.hash);
    if (!isNewest()) return;
    if (typeof bytes === 'string') return refuse('The link', BAD_LINK[bytes]);
    await check(bytes, 'linked', 'The proof in the link', null);
  }

  file.addEventListener('change', () => void checkFiles([...(file.files ?? [])]));
  sent.addEventListener('change', nameRequest);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void checkPasted();
  });
  onDrop(form, ({ files, items }) => {
    const folder = [...items].map((item) => item.webkitGetAsEntry?.()).find((entry) => entry?.isDirectory === true);
    open();
    if (folder == null) return void checkFiles([...files]);
    begin();
    forget();
    refuse(folder.name, FOLDER);
  });
  addEventListener('hashchange', () => void checkAddress());
  void checkAddress();
}

function refuse(name: string, { is, next }: Refusal): void {
  const problem = byId('drop-problem');
  problem.replaceChildren(el('h2', {}, `${name} ${is}.`), el('p', {}, next));
  problem.hidden = false;
}

/** The address stays that of what is shown. */
function leaveLink(): void {
  if (isLink(location.hash)) history.replaceState(null, '', '#check');
}

/** Takes files that are dropped anywhere on the page. */
function onDrop(form: HTMLElement, take: (dropped: DataTransfer) => void): void {
  addEventListener('dragover', (event) => {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    form.classList.add('over');
  });
  addEventListener('dragleave', (event) => {
    if (event.relatedTarget === null) form.classList.remove('over');
  });
  addEventListener('drop', (event) => {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    form.classList.remove('over');
    take(event.dataTransfer);
  });
}

/** A file as it was read, or why it was not. */
async function bytesOf(chosen: File): Promise<Read | ({ readonly name: string } & Refusal)> {
  const { name, size } = chosen;
  if (size > MAX_INPUT_BYTES) return { name, ...TOO_LARGE };
  if (size === 0) return { name, ...EMPTY };
  const bytes = await chosen.arrayBuffer().catch(() => null);
  return bytes === null ? { name, ...UNREADABLE } : { name, bytes: new Uint8Array(bytes) };
}

// The view that checks what was kept: a file, a text or an address is read and checked in this page, and sent nowhere.
import { byId, el } from '../dom.ts';
import { isLink, proofIn } from '../proof/link.ts';
import { createProof } from '../proof/proof.ts';
import { attestationIn, MAX_INPUT_BYTES, mayBeProof, readStored, type Subject, textOf } from '../proof/subject.ts';
import type { Settings } from '../proof/verifier.ts';
import { signedConversation } from './signed.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** @param open brings the view forward, for a file that is dropped anywhere. */
export function createCheck(settings: () => Settings, refresh: () => Promise<void>, open: () => void): void {
  const form = byId<HTMLFormElement>('drop');
  const file = byId<HTMLInputElement>('file');
  const sent = byId<HTMLInputElement>('sent');
  const paste = byId<HTMLTextAreaElement>('paste');
  const problem = byId('drop-problem');

  async function check(bytes: Bytes, label: string, name: string, request: string | null): Promise<void> {
    refuse('');
    await show(readStored(bytes, name, request), label);
  }
  async function show(subject: Subject, label: string): Promise<void> {
    const attestation = attestationIn(subject);
    const signed = attestation === null ? null : signedConversation(attestation.raw);
    const proof = createProof(subject, signed?.bubbles ?? null);
    byId('checked').replaceChildren(el('h2', {}, label), proof.element, signed?.element ?? '');
    scrollTo(0, 0);
    if (!(await proof.run(settings()))) {
      await refresh();
      await proof.run(settings());
    }
    proof.element.querySelector<HTMLElement>('.verdict-title')?.focus({ preventScroll: true });
  }
  async function checkFiles(files: readonly File[]): Promise<void> {
    const read = await Promise.all([...files, ...(sent.files ?? [])].slice(0, 3).map(bytesOf));
    const contents = read.filter((one) => one !== null);
    if (contents.length < read.length) return;
    const [proof] = [...contents.filter(({ bytes }) => mayBeProof(bytes)), ...contents];
    if (proof === undefined) return;
    const others = contents.filter((one) => one !== proof);
    if (others.length > 1)
      return refuse('One proof at a time: a file with the proof and, if you have it, the request.');
    const request = others[0] === undefined ? null : textOf(others[0].bytes);
    await check(proof.bytes, proof.name, proof.name.replace(/\.\w+$/, ''), request);
  }
  /** null: it was refused. */
  async function bytesOf(chosen: File): Promise<{ readonly name: string; readonly bytes: Bytes } | null> {
    const { name, size } = chosen;
    const refused =
      size > MAX_INPUT_BYTES
        ? `is larger than ${MAX_INPUT_BYTES / 1024 / 1024} MiB.`
        : size === 0
          ? 'is empty, or no file.'
          : null;
    const bytes = refused === null ? await chosen.arrayBuffer().catch(() => null) : null;
    if (bytes !== null) return { name, bytes: new Uint8Array(bytes) };
    refuse(`${name} ${refused ?? 'cannot be read: it is a folder, or was changed or moved.'}`);
    return null;
  }
  function refuse(text: string): void {
    problem.textContent = text;
    problem.hidden = text === '';
  }
  async function checkAddress(): Promise<void> {
    if (!isLink(location.hash)) return;
    const bytes = await proofIn(location.hash);
    if (bytes === 'damaged') return refuse('The link is cut off or damaged: no proof can be read from it.');
    if (bytes === 'too_large') return refuse('The link unpacks to more than 4 MiB, which no link of this page does.');
    await check(bytes, 'The proof in the link', 'linked', null);
  }

  file.addEventListener('change', () => {
    void checkFiles([...(file.files ?? [])]).then(() => {
      file.value = ''; // so that the same file can be chosen again
    });
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (paste.value.trim() === '') return refuse('Paste a proof first, or choose a file.');
    void Promise.all([...(sent.files ?? [])].map(bytesOf)).then(([request]) =>
      request === null
        ? undefined
        : check(
            new TextEncoder().encode(paste.value),
            'What you pasted',
            'pasted',
            request === undefined ? null : textOf(request.bytes),
          ),
    );
  });
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
    open();
    void checkFiles([...event.dataTransfer.files]);
  });
  addEventListener('hashchange', () => void checkAddress());
  void checkAddress();
}

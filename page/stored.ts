// The drop zone: a file, or a text, that was kept is read and checked in this page, and sent nowhere.
import { byId, el } from './dom.ts';
import { createProof } from './proof/proof.ts';
import { MAX_INPUT_BYTES, readStored } from './proof/subject.ts';
import type { Settings } from './proof/verifier.ts';

/** @param open brings the view with the drop zone forward, for a file that is dropped anywhere. */
export function createStored(settings: () => Settings, open: () => void): void {
  const form = byId<HTMLFormElement>('drop');
  const file = byId<HTMLInputElement>('file');
  const paste = byId<HTMLTextAreaElement>('paste');
  const problem = byId('drop-problem');

  async function check(bytes: Uint8Array<ArrayBuffer>, label: string, name: string): Promise<void> {
    refuse('');
    const proof = createProof(readStored(bytes, name), settings);
    byId('checked').replaceChildren(el('h2', {}, label), proof.element);
    await proof.run();
    proof.element.querySelector<HTMLElement>('.verdict-title')?.focus();
  }
  async function checkFile(chosen: File | undefined): Promise<void> {
    if (chosen === undefined) return;
    if (chosen.size > MAX_INPUT_BYTES)
      return refuse(`${chosen.name} is larger than ${MAX_INPUT_BYTES / 1024 / 1024} MiB.`);
    if (chosen.size === 0) return refuse(`${chosen.name} is empty, or no file.`);
    const bytes = await chosen.arrayBuffer().catch(() => null);
    if (bytes === null) return refuse(`${chosen.name} cannot be read: it is a folder, or was changed or moved.`);
    await check(new Uint8Array(bytes), chosen.name, chosen.name.replace(/\.\w+$/, ''));
  }
  function refuse(text: string): void {
    problem.textContent = text;
    problem.hidden = text === '';
  }

  file.addEventListener('change', () => {
    void checkFile(file.files?.[0]).then(() => {
      file.value = ''; // so that the same file can be chosen again
    });
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (paste.value.trim() === '') return refuse('Paste an attestation first, or choose a file.');
    void check(new TextEncoder().encode(paste.value), 'What you pasted', 'pasted');
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
    void checkFile(event.dataTransfer.files[0]);
  });
}

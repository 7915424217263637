// The field that names a release, its trusted root, and a release.json that the visitor brings.
import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import { PROJECT } from '../../verify/release/project.ts';
import { byId } from '../base/dom.ts';
import { textOf } from '../proof/subject.ts';
import type { Refusal } from './foreign.ts';

type Refused = { readonly name: string } & Refusal;

const PUBLIC = "Sigstore's public root is built in.";
const NOT_NAMED: Refused = {
  name: 'The release',
  is: 'is not named as OWNER/REPO or OWNER/REPO@TAG',
  next: 'Correct its name, or empty the field, and choose the proof again.',
};
const NO_ROOT: Refusal = {
  is: 'is no trusted root of Sigstore',
  next: 'Choose a trusted_root.json, then the proof again.',
};
export const RELEASE: Refusal = {
  is: 'is a release, which this page keeps until it is closed',
  next: 'Name it under “Compare with a release”, then choose the proof.',
};
/** No trusted root is larger. */
const MAX_ROOT_BYTES = 1024 * 1024;

interface ReleaseField {
  /** With its texts. null: none is named. */
  read(): Promise<ReleaseOptions | Refused | null>;
  /** Keeps a release.json. @returns false where it is none. */
  keep(bytes: Uint8Array<ArrayBuffer>): Promise<boolean>;
}

export function createReleaseField(): ReleaseField {
  const fold = byId<HTMLDetailsElement>('release-fold');
  const field = byId<HTMLInputElement>('release');
  const chosen = byId<HTMLInputElement>('trusted-root');
  let kept: Pick<ReleaseOptions, 'bundle' | 'status'> | null = null;

  const nameRoot = () => {
    byId('trusted-root-name').textContent = chosen.files?.[0]?.name ?? PUBLIC;
  };
  chosen.addEventListener('change', nameRoot);
  nameRoot();
  // The project's own, once it has one: proofs are compared with it only where a visitor asks.
  fold.addEventListener('toggle', () => {
    if (fold.open && field.value === '') field.value = PROJECT?.repository ?? '';
  });

  async function read(): Promise<ReleaseOptions | Refused | null> {
    if (field.value.trim() === '') return null;
    const { isTrustedRoot, releaseNamed, servedRelease } = await import('../proof/release.ts');
    const named = releaseNamed(field.value);
    if (named === null) return NOT_NAMED;
    const [file] = chosen.files ?? [];
    const trustedRoot = file === undefined ? undefined : await rootIn(file);
    if (file !== undefined && !isTrustedRoot(trustedRoot ?? '')) return { name: file.name, ...NO_ROOT };
    return { ...(kept ?? (await servedRelease())), ...named, trustedRoot };
  }

  async function keep(bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const text = textOf(bytes);
    if (!/^\s*\{\s*"(bundle|status)"\s*:\s*(\{|null)/.test(text)) return false;
    const { releaseIn } = await import('../proof/release.ts');
    const found = releaseIn(text);
    kept = found ?? kept;
    return found !== null;
  }
  return { read, keep };
}

/** Empty where it cannot be read, or is too large to be one. */
async function rootIn(file: File): Promise<string> {
  return file.size > MAX_ROOT_BYTES ? '' : file.text().catch(() => '');
}

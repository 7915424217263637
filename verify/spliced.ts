// The attestation where it travels: a member of a response or of a chunk, found in the exact text and cut out of it.
import type { Attestation } from '../proto/attestation.ts';
import { type Member, topLevelMembers, withoutMember } from '../proto/json.ts';
import { readInput } from './form.ts';

/** The member's value as it was written, in the first place where it stands; null where there is none. Not yet checked. */
export function attestationIn(text: string): string | null {
  const found = find(text);
  return found === null ? null : text.slice(found.member.valueStart, found.member.valueEnd);
}

/** The text without `checked`; as it is where it carries none, or another than that, or something that is none. */
export function withoutAttestation(text: string, checked: Attestation): string {
  const found = find(text);
  if (found === null || !isThat(text.slice(found.member.valueStart, found.member.valueEnd), checked)) return text;
  return withoutMember(text, found.members, found.members.indexOf(found.member));
}

function find(text: string): { readonly members: Member[]; readonly member: Member } | null {
  // A name may be written in escapes.
  if (!text.includes('attestation') && !text.includes('\\u')) return null;
  try {
    const members = topLevelMembers(text);
    const member = members.find(({ key }) => key === 'attestation');
    return member === undefined ? null : { members, member };
  } catch {
    return null;
  }
}

/** What is cut out is in no hash, so it must be of the form that is checked, and about the same raw. */
function isThat(text: string, { raw, nonce }: Attestation): boolean {
  try {
    const { attestation, carrier } = readInput(text, { maxCharacters: Number.POSITIVE_INFINITY });
    return carrier === null && attestation.raw === raw && attestation.nonce === nonce;
  } catch {
    return false;
  }
}

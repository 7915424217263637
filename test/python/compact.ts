// Compact forms of whole attestations that both verifiers are asked about, with the bundles that they name.
import { createHash } from 'node:crypto';
import { isObject } from '../../proto/json.ts';
import type { Options, Question } from './package.ts';

type Members = Readonly<Record<string, unknown>>;

/** The same question three times, about equal members: whole, and in each compact form that it can have. */
export interface Forms {
  readonly whole: Question;
  readonly compact: readonly Question[];
}

/** null: it is about no whole attestation. */
export function formsOf(question: Question): Forms | null {
  if (question.call !== 'attestation') return null;
  const value = objectIn(question);
  if (!isObject(value)) return null;
  const carried = isObject(value.attestation) ? value.attestation : value;
  if (!('raw' in carried) || 'bundle' in carried) return null;
  const within = (attestation: Members) => (carried === value ? attestation : { ...value, attestation });
  const asked = (name: string, attestation: Members, bundles?: Options['bundles']): Question => ({
    ...question,
    name: `${question.name}${name}`,
    input: { text: JSON.stringify(within(attestation)) },
    options: { ...(question.options as Options), bundles },
  });
  const compact = [...inBatch(carried), ...ofItsOwn(carried)].map(([attestation, bundle]) => {
    const text = JSON.stringify(bundle);
    const sha256 = createHash('sha256').update(text).digest('hex');
    return asked(`, compact (${Object.keys(bundle)})`, { ...attestation, bundle: sha256 }, { [sha256]: text });
  });
  return { whole: asked(', whole', carried), compact };
}

function objectIn({ input }: Question): unknown {
  if ('value' in input) return input.value;
  if ('bytes' in input) return null;
  try {
    return JSON.parse(input.text);
  } catch {
    return null;
  }
}

/** Token, evidence and session stand in the bundle. */
function inBatch({ token, evidence, cpu, ...own }: Members): [Members, Members][] {
  if (token === undefined || evidence === undefined) return [];
  if (cpu === undefined) return [[own, { token, evidence }]];
  const cut = cutSession(cpu);
  return cut === null
    ? []
    : [
        [
          { ...own, cpu: cut.short },
          { token, evidence, cpu: cut.session },
        ],
      ];
}

/** Only the session stands in the bundle. */
function ofItsOwn({ cpu, ...own }: Members): [Members, Members][] {
  const cut = cutSession(cpu);
  return cut === null ? [] : [[{ ...own, cpu: cut.short }, { cpu: cut.session }]];
}

/** null: there is no session of a form that can be cut. */
function cutSession(cpu: unknown): { short: Members; session: Members } | null {
  if (!isObject(cpu) || typeof cpu.statement !== 'string' || typeof cpu.signature !== 'string') return null;
  const { signature, ...session } = cpu;
  const statement_sha256 = createHash('sha256').update(cpu.statement).digest('hex');
  return { short: { statement_sha256, signature }, session };
}

// The verdict's sentences about a processor's evidence. They are loaded with its checks.
import type { CheckList } from '../common/checks.ts';
import type { ReleaseClaims } from '../common/release-options.ts';
import type { CpuClaims, CpuSoftware } from './cpu-options.ts';

export interface CpuWords {
  readonly proven: readonly string[];
  /** What it does not prove. */
  readonly open: readonly string[];
}

/** Where nothing is bound to the devices that signed, nothing is said. */
export const NO_WORDS: CpuWords = { proven: [], open: [] };

interface Circumstances {
  /** Whether a response was signed in the session; else it is a session by itself. */
  readonly answered: boolean;
  /** Whether the caller's roots stand in place of AMD's and Intel's. */
  readonly ownRoots: boolean;
  /** Whether the session holds a challenge of the caller. */
  readonly challenged: boolean;
  /** The release whose list was compared; null: the caller's own was. */
  readonly release: ReleaseClaims | null;
}

/** @param list in which the checks of the evidence have run. @param claims of evidence that is bound to the devices. */
export function wordsOf(list: CheckList, claims: CpuClaims, circumstances: Circumstances): CpuWords {
  const { software } = claims;
  const release = software?.release === circumstances.release?.statement_sha256 ? circumstances.release : null;
  return {
    proven: [cpuProven(claims, circumstances), ...(software === null ? [] : softwareProven(software, release))],
    open: [
      ...(circumstances.answered ? [weightsOpen(software)] : []),
      ...softwareOpen(software),
      ...(release === null ? [] : releaseOpen(release)),
      ...(list.passed('cpu_tcb')
        ? []
        : ["That the processor's firmware has no known hole: its TCB was not compared with a least one."]),
      'That nobody took over the guest since its start.',
      'That the device which signed is in that machine, or computes for it: the guest wrote the list of its devices.',
      'That keys are in the processor or the guest only: anybody who owns a board can extract some (TEE.fail) and forge this level.',
      ...(circumstances.challenged
        ? []
        : ["When the session began: its hour is by that machine's own clock, unless the caller demands a challenge."]),
    ],
  };
}

function cpuProven({ type, product, measurement }: CpuClaims, { answered, ownRoots }: Circumstances): string {
  const [maker, processor, guest] = type.endsWith('TDX')
    ? ['Intel', 'a processor with TDX', 'a trust domain']
    : ['AMD', `a ${product} processor`, 'an SEV-SNP guest'];
  const key = ownRoots
    ? `A key under a root that the caller trusts in place of ${maker}'s`
    : `A key that ${maker} certified`;
  const signed = answered ? ', which signed this answer' : '';
  return `${key}, of ${processor}, signed that ${guest} of launch measurement ${measurement} named this session's key${signed}.`;
}

function softwareProven({ launch, images, weights, model }: CpuSoftware, release: ReleaseClaims | null): string[] {
  const names = Object.entries(images ?? {}).map(([name, image]) => `${name} ${image}`);
  const list = release === null ? "the caller's list" : `the list of ${releaseSentence(release, launch)}`;
  const who = weights == null ? "the file's writer" : 'its compose file, whose backend has no way out,';
  const which = names.length === 0 ? '' : `; ${who} names ${names.join(', ')}`;
  return [
    `That guest's measurement and the launch file ${launch} are on ${list}${which}.`,
    ...(model == null
      ? []
      : [
          `Which weights: ${model.name}, root ${model.verity_root}, mounted read-only in that guest; nothing else could be loaded by the launch's own command.`,
        ]),
  ];
}

function weightsOpen(software: CpuSoftware | null): string {
  if (software?.model == null) return "Which model's weights ran.";
  return 'That the engine used these weights for this answer: the bytes that were read are those of this root, and only an audit looks at what was computed.';
}

function softwareOpen(software: CpuSoftware | null): string[] {
  if (software === null)
    return [
      'Which software asked: its measurement was not compared, and anybody who can run code in that guest can have any text signed.',
    ];
  return [
    software.weights == null
      ? "Where the answer comes from: the launch file's images, model and egress are its writer's words, and of the compose file, which says the rest, it holds the hash only."
      : 'What the images do: the launch file names each by its digest, and what is in them was not looked at.',
    ...(software.uncompared === null ? [] : [`All that the guest was started with: ${software.uncompared}.`]),
  ];
}

/** `Countersign 0.3.0, built from commit … by the public workflow, in Sigstore's log since …, weights …`. */
export function releaseSentence(release: ReleaseClaims, launch: string): string {
  const { repository, own, tag, commit, logged, own_root, weights, launches } = release;
  const name = own ? `Countersign ${tag.replace(/^v/, '')}` : `${tag} of ${repository}`;
  const log = own_root ? 'in a log that the caller trusts' : "in Sigstore's log";
  const served = weights.filter((one) => one.launch === launches[launch]).map((one) => one.name);
  const models = served.length === 0 ? '' : `, weights ${served.join(', ')}`;
  return `${name}, built from commit ${commit} by the public workflow, ${log} since ${logged.slice(0, 10)}${models}`;
}

function releaseOpen({ repository, tag, status }: ReleaseClaims): string[] {
  const { state, time, current, withdrawn_later: later } = status ?? { state: 'absent' };
  return [
    `That the release is good: it shows who published it (${repository}) and from which commit, not that anybody reviewed that.`,
    ...(state === 'absent' ? ['That the release was not withdrawn: no status of its publisher was shown.'] : []),
    ...(state === 'stale'
      ? [
          `That the release was not withdrawn: its publisher's newest status is of ${time}, 14 days or more before the answer.`,
        ]
      : []),
    ...(current != null && current !== tag ? [`That it is the current release: its publisher's is ${current}.`] : []),
    ...(later == null
      ? []
      : [`That the release still holds: it was withdrawn after the time of this check (${later}).`]),
  ];
}

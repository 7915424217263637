// The lists of reference values that the Python package and our own verifier are given, and what each has to say of them.
import { makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import type { CpuReference } from '../../verify/cpu.ts';
import { caseOf, memberOf } from '../verify/cpu/cases.ts';
import { AT } from '../verify/maker.ts';
import { amd, type Processor, snpLeaf } from '../verify/session-maker.ts';
import {
  behindVtpm,
  CONFIG,
  dstackEvent,
  type Guest,
  HOST,
  listOf,
  MEASURED,
  ownOf,
  PCRS,
  RTMR3,
  sha256,
  snpOf,
  tdxOf,
  withLog,
} from './guests.ts';
import type { Question } from './package.ts';
import { processors } from './questions.ts';

/** A question, and what both have to say. */
export interface Expected {
  readonly question: Question;
  readonly expected: string;
}

// Genuine guests: what is said of a guest, and of its launch file.

const OWN = 'pass, pass';
const GUEST = 'measurement_mismatch, skip';
const LAUNCH = 'pass, software_mismatch';
const LOG = 'pass, event_log_mismatch';
const NEITHER = 'skip, skip';
const ZERO = '00'.repeat(32);
const OTHER = ['ab'.repeat(48)];
const or = (list: unknown) => [...OTHER, ...(list as string[])];
const azureGuest = (guest: object) => ({ type: 'AZURE_SEV_SNP', ...guest, ...MEASURED });
const pcr = (id: string, ...registers: readonly number[]) =>
  Object.fromEntries(registers.map((n) => [n, [ZERO, memberOf(caseOf(id)).tpm?.pcrs[n]]]));

type GenuineGuest = readonly [
  id: string,
  name: string,
  verdict: string,
  guests: (own: Guest) => Guest | readonly Guest[],
  label?: string,
];
const GENUINE: readonly GenuineGuest[] = [
  ['milan-v3-caci', 'itself', OWN, (own) => ({ ...own, ...HOST })],
  ['milan-v3-caci', 'its MEASUREMENT alone', OWN, ({ type, measurement }) => ({ type, measurement, ...HOST })],
  ['milan-v3-caci', 'more', OWN, (own) => ({ ...own, measurement: or(own.measurement), ...HOST })],
  ['milan-v3-caci', 'another', GUEST, (own) => ({ ...own, measurement: OTHER, ...HOST })],
  ['milan-v3-caci', 'another privilege level', GUEST, (own) => ({ ...own, vmpl: [1, 2, 3], ...HOST })],
  ['milan-v3-caci', 'another identity key', GUEST, (own) => ({ ...own, id_key_digest: OTHER, ...HOST })],
  ['milan-v3-caci', 'another launch file', LAUNCH, (own) => ({ ...own, ...HOST }), ZERO],
  ['milan-v3-caci', 'a launch file that is measured', LAUNCH, (own) => own],
  [
    'milan-v3-caci',
    'its own behind another',
    OWN,
    (own) => [
      { ...own, vmpl: [1] },
      { ...own, ...HOST },
    ],
  ],
  ['milan-v3-caci', 'its own twice', LAUNCH, (own) => [own, { ...own, ...HOST }]],
  ['milan-v3-caci', 'Azure’s alone', GUEST, ({ measurement }) => azureGuest({ measurement, pcrs: { 0: [ZERO] } })],
  ['milan-v3-vlek-aws', 'its privilege level', OWN, (own) => ({ ...own, ...HOST })],
  ['milan-v3-vlek-aws', 'none', GUEST, (own) => ({ ...own, vmpl: undefined, ...HOST })],
  ['milan-v2-debug', 'itself, with DEBUG', OWN, (own) => ({ ...own, ...HOST })],
  ['turin-v5-caci-bit', 'itself, with no signature', NEITHER, (own) => ({ ...own, ...HOST })],
  ['turin-v5-caci-tail', 'itself, malformed', NEITHER, (own) => ({ ...own, ...HOST })],
  ['v4-gcp-cos113', 'itself', OWN, (own) => ({ ...own, ...CONFIG })],
  ['v4-gcp-cos113', 'any RTMR0', OWN, (own) => ({ ...own, rtmr0: null, ...CONFIG })],
  ['v4-gcp-cos113', 'no RTMR3, and it is zero', OWN, (own) => ({ ...own, rtmr3: undefined, ...CONFIG })],
  ['v4-gcp-cos113', 'more', OWN, (own) => ({ ...own, rtmr1: or(own.rtmr1), ...CONFIG })],
  ...['mrtd', 'rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'].map(
    (name): GenuineGuest => [
      'v4-gcp-cos113',
      `another ${name}`,
      GUEST,
      (own) => ({ ...own, [name]: OTHER, ...CONFIG }),
    ],
  ),
  ['v4-gcp-cos113', 'another launch file', LAUNCH, (own) => ({ ...own, ...CONFIG }), 'cd'.repeat(32)],
  ['v4-gcp-cos113', 'an event without a log', LAUNCH, (own) => ({ ...own, ...RTMR3 })],
  ['v4-gcp-cos113', 'a launch file that is measured', LAUNCH, (own) => own],
  ['v4-gcp-cos113-ccel', 'itself', OWN, (own) => ({ ...own, ...CONFIG })],
  ['v4-gcp-cos113-ccel', 'an event of CCEL', LAUNCH, (own) => ({ ...own, ...RTMR3 })],
  ['v4-gcp-cos113-ccel-changed', 'itself, with another log', LOG, (own) => ({ ...own, ...CONFIG })],
  ['v4-uptodate-20a06f', 'itself, whose MRCONFIGID goes on', LAUNCH, (own) => ({ ...own, ...CONFIG })],
  ['v4-uptodate-20a06f', 'no RTMR3, and no log', GUEST, (own) => ({ ...own, rtmr3: undefined, ...CONFIG })],
  ['v4-dstack-rtmr3-log', 'no RTMR3, but a log', OWN, (own) => ({ ...own, rtmr3: undefined, ...CONFIG })],
  ['v4-dstack-rtmr3-log', 'another RTMR3', GUEST, (own) => ({ ...own, rtmr3: OTHER, ...CONFIG })],
  ['v4-dstack-rtmr3-log', 'an event that is not there', LAUNCH, (own) => ({ ...own, ...RTMR3 })],
  ['v4-dstack-rtmr3', 'no RTMR3, and no log', GUEST, (own) => ({ ...own, rtmr3: undefined, ...CONFIG })],
  ['v5-uptodate', 'itself', OWN, (own) => ({ ...own, ...CONFIG })],
  ['v4-bit', 'itself, with no signature', NEITHER, (own) => ({ ...own, ...CONFIG })],
  ['snp-milan-v1', 'itself', LAUNCH, (own) => ({ ...own, pcrs: pcr('snp-milan-v1', 0, 11, 23) })],
  [
    'snp-milan-v1',
    'another MEASUREMENT',
    GUEST,
    (own) => ({ ...own, measurement: OTHER, pcrs: pcr('snp-milan-v1', 4) }),
  ],
  ['snp-milan-v1', 'another privilege level', GUEST, (own) => ({ ...own, vmpl: [2], pcrs: pcr('snp-milan-v1', 4) })],
  ['snp-milan-v1', 'another PCR', GUEST, (own) => ({ ...own, pcrs: { ...pcr('snp-milan-v1', 4), 7: [ZERO] } })],
  [
    'snp-milan-v1-runtime',
    'itself, behind no vTPM',
    NEITHER,
    (own) => ({ ...own, pcrs: pcr('snp-milan-v1-runtime', 4) }),
  ],
  ['tdx-v2', 'itself', LAUNCH, (own) => ({ ...own, pcrs: pcr('tdx-v2', 4) })],
  ['tdx-v2', 'any privilege level', LAUNCH, (own) => ({ ...own, vmpl: [3], pcrs: pcr('tdx-v2', 4) })],
  ['tdx-v2', 'another MRTD', GUEST, (own) => ({ ...own, measurement: OTHER, pcrs: pcr('tdx-v2', 4) })],
  ['tdx-v2', 'another PCR', GUEST, (own) => ({ ...own, pcrs: { 4: ['cd'.repeat(32)] } })],
];

/** Each guest among reference values, and what is said of it and of its launch file. */
export function genuineGuests(): Expected[] {
  const processor = new Map(processors().map((question) => [question.name, question]));
  return GENUINE.map(([id, name, expected, guests, label]) => {
    const question = processor.get(id);
    if (question === undefined || !('text' in question.input)) throw new TypeError(`no case ${id}`);
    const [own, digest] = ownOf(JSON.parse(question.input.text));
    const reference = listOf([guests(own)].flat(), 'ef'.repeat(32), label ?? digest);
    const options = { ...question.options, reference };
    return { expected, question: { ...question, name: `${id}: ${name}`, options } as Question };
  });
}

// Lists that can be used, and lists that cannot.

const HEX = 'ab'.repeat(48);
const SHA = 'cd'.repeat(32);
const snp = { type: 'SEV_SNP', measurement: [HEX], launch_in: 'host_data' };
const quote = { type: 'TDX', mrtd: [HEX], rtmr0: null, rtmr1: [HEX], rtmr2: [HEX], launch_in: 'rtmr3' };
const azure = { type: 'AZURE_SEV_SNP', measurement: [HEX], pcrs: { 11: [SHA] }, launch_in: 'measurement' };
const azureTdx = { ...azure, type: 'AZURE_TDX' };
const list = { version: 1, cpu: [snp], launch: [SHA] };
const of = (...cpu: readonly unknown[]) => ({ ...list, cpu });
const TEXT = JSON.stringify(list);
const without = (guest: object, name: string) =>
  Object.fromEntries(Object.entries(guest).filter(([one]) => one !== name));
/** Text, or a value that is given parsed and as text. */
const USABLE: readonly (readonly [name: string, list: unknown])[] = [
  ['of each type', of(snp, quote, azure, azureTdx)],
  ['of one guest twice', of(snp, snp)],
  ['of all that is optional', of({ ...snp, vmpl: [0, 1, 2, 3], id_key_digest: [HEX] }, { ...quote, rtmr3: [HEX] })],
  ['of RTMR0', of({ ...quote, rtmr0: [HEX] })],
  ...['measurement', 'mrconfigid', 'rtmr3'].map((launch_in) => [launch_in, of({ ...quote, launch_in })] as const),
  ['of measured launch files', of({ ...snp, launch_in: 'measurement' })],
  ['of 1,024 launch files', { ...list, launch: Array(1024).fill(SHA) }],
  ['of 1,024 guests', of(...Array(1024).fill(snp))],
  ['of 24 registers', of({ ...azure, pcrs: Object.fromEntries([...Array(24).keys()].map((i) => [i, [SHA]])) })],
  ['of Azure’s privilege levels', of({ ...azure, vmpl: [0, 1] }, { ...azureTdx, vmpl: [0] })],
  ['of level -0.0', JSON.stringify(of({ ...snp, vmpl: [0] })).replace('[0]', '[-0.0]')],
  ['of 1,048,576 characters', TEXT.padEnd(1_048_576)],
  ['with white space', JSON.stringify(list, null, 2)],
  ['with escapes', TEXT.replace('"cpu"', '"\\u0063pu"')],
  ['of version 1.0', TEXT.replace('1', '1.0')],
];
const UNUSABLE: typeof USABLE = [
  ['of 1,048,577 characters', TEXT.padEnd(1_048_577)],
  ['empty', ''],
  ['no JSON', `${TEXT},`],
  ['behind a byte order mark', `\ufeff${TEXT}`],
  ['null', 'null'],
  ['no object', [list]],
  ['nested deeply', '['.repeat(100_000)],
  ['of a member twice', TEXT.replace('{', '{"version":1,')],
  ['of a member twice, in an escape', TEXT.replace('{', '{"\\u0076ersion":1,')],
  ['of a guest’s member twice', TEXT.replace('[{', '[{"type":"SEV_SNP",')],
  ['of a register twice', JSON.stringify(of(azure)).replace('"11":', `"11":["${SHA}"],"11":`)],
  ['of another version', { ...list, version: 2 }],
  ['of a version that is text', { ...list, version: '1' }],
  ['of a version that is true', { ...list, version: true }],
  ['of no version', without(list, 'version')],
  ['of one more member', { ...list, gpu: [] }],
  ['of a prototype', TEXT.replace('{', '{"__proto__":{},')],
  ['of a guest’s prototype', TEXT.replace('[{', '[{"__proto__":{},')],
  ['of no guests', of()],
  ['without guests', without(list, 'cpu')],
  ['of 1,025 guests', of(...Array(1025).fill(snp))],
  ['of an object of guests', { ...list, cpu: { 0: snp } }],
  ['of null for a guest', of(null)],
  ['of no launch files', { ...list, launch: [] }],
  ['without launch files', without(list, 'launch')],
  ['of 1,025 launch files', { ...list, launch: Array(1025).fill(SHA) }],
  ['of a launch file in capitals', { ...list, launch: [SHA.toUpperCase()] }],
  ['of a long launch file', { ...list, launch: [HEX] }],
  ['of a launch file and a line feed', { ...list, launch: [`${SHA}\n`] }],
  ['of text for a list', { ...list, launch: SHA }],
  ['of an unknown type', of({ ...snp, type: 'SEV' })],
  ['of the type constructor', of({ ...snp, type: 'constructor' })],
  ['of no type', of(without(snp, 'type'))],
  ['of a guest’s member more', of({ ...snp, comment: '' })],
  ['of the other type’s member', of({ ...snp, mrtd: [HEX] })],
  ['of SNP’s registers', of({ ...snp, pcrs: azure.pcrs })],
  ['of TDX’s registers', of({ ...quote, pcrs: azure.pcrs })],
  ['of a TD’s privilege level', of({ ...quote, vmpl: [0] })],
  ['of Azure’s identity keys', of({ ...azure, id_key_digest: [HEX] })],
  ['of Azure’s RTMRs', of({ ...azureTdx, rtmr1: [HEX] })],
  ['of Azure’s MRTD', of({ ...without(azureTdx, 'measurement'), mrtd: [HEX] })],
  ...['measurement', 'launch_in'].map((name) => [`of no ${name}`, of(without(snp, name))] as const),
  ...['mrtd', 'rtmr0', 'rtmr1', 'rtmr2'].map((name) => [`of no ${name}`, of(without(quote, name))] as const),
  ...['mrtd', 'rtmr1', 'rtmr2', 'rtmr3'].map(
    (name) => [`of null for ${name}`, of({ ...quote, [name]: null })] as const,
  ),
  ['of no MEASUREMENT', of({ ...snp, measurement: [] })],
  ['of null for privilege levels', of({ ...snp, vmpl: null })],
  ['of no privilege level', of({ ...snp, vmpl: [] })],
  ...[4, -1, 0.5, '0', true, null].map((level) => [`of level ${level}`, of({ ...snp, vmpl: [level] })] as const),
  ['of a number for a level', of({ ...snp, vmpl: 0 })],
  ['of a short MEASUREMENT', of({ ...snp, measurement: [SHA] })],
  ['of a MEASUREMENT in capitals', of({ ...snp, measurement: [HEX.toUpperCase()] })],
  ['of no PCR', of({ ...azure, pcrs: {} })],
  ['of an empty PCR', of({ ...azure, pcrs: { 11: [] } })],
  ['without PCRs', of(without(azure, 'pcrs'))],
  ['of a list of PCRs', of({ ...azure, pcrs: [[SHA]] })],
  ...['24', '011', '-1', '1e1', '', ' 1', 'length'].map(
    (n) => [`of PCR ${n}`, of({ ...azure, pcrs: { [n]: [SHA] } })] as const,
  ),
  ['of a long PCR', of({ ...azure, pcrs: { 11: [HEX] } })],
  ...['rtmr3', 'mrconfigid', 'HOST_DATA', '', 'toString', null, ['host_data']].map(
    (launch_in) => [`of SNP’s ${launch_in}`, of({ ...snp, launch_in })] as const,
  ),
  ['of a TD’s host_data', of({ ...quote, launch_in: 'host_data' })],
  ['of Azure’s host_data', of({ ...azure, launch_in: 'host_data' })],
  ['of Azure’s mrconfigid', of({ ...azureTdx, launch_in: 'mrconfigid' })],
];

/** Each list as text, and where it is a value also as that; of one that cannot be used a TypeError is expected. */
export function lists(): Expected[] {
  const member = snpMember(makeSnpReport('Genoa', snpLeaf), [snpLeaf, amd.ask]);
  const rows = [
    ...USABLE.map((row) => [NEITHER, ...row] as const),
    ...UNUSABLE.map((row) => ['TypeError', ...row] as const),
  ];
  return rows.flatMap(([expected, name, given]) => {
    const forms = typeof given === 'string' ? [given] : [JSON.stringify(given), given];
    return forms.map((form): Expected => {
      const options = { at: AT.toISOString(), reference: form as CpuReference };
      return { expected, question: { name: `a list ${name}`, call: 'cpu', input: { value: member }, options } };
    });
  });
}

// Guests that a test makes: the first check that fails.

const RIGHT = 'valid';
const OTHER_GUEST = 'cpu_measurement measurement_mismatch';
const OTHER_LAUNCH = 'cpu_software software_mismatch';
const OTHER_LOG = 'cpu_software event_log_mismatch';
const FILE = sha256('a launch file');
const DIGEST = FILE.toString('hex');
const LISTED = sha256('another launch file').toString('hex');
const UNLISTED = sha256('an unknown launch file').toString('hex');
const NOTHING = Buffer.alloc(48);
const LABEL = Buffer.concat([FILE, Buffer.alloc(16)]);
const LONG = Buffer.concat([FILE, Buffer.alloc(16, 1)]);
const event = (payload: Uint8Array) => dstackEvent(3, 'countersign-launch', payload);
const before = dstackEvent(3, 'app-id', FILE);
const early = dstackEvent(2, 'countersign-launch', FILE);
/** The registers of these events, and a log of those. */
const logOf = (log: readonly object[], events: Parameters<typeof tdxOf>[1]) =>
  withLog(tdxOf(LABEL, events), JSON.stringify(log));
const withoutDigests = (processor: Processor): Processor =>
  withLog(processor, (log) => log.replaceAll(/"digest":"[0-9a-f]*"/g, '"digest":""'));
const loud = { ...event(FILE), event_payload: DIGEST.toUpperCase() };

type MadeGuest = readonly [
  name: string,
  verdict: string,
  processor: Processor,
  guest: Guest,
  /** Of the statement. */
  launch?: string,
];
export const MADE: readonly MadeGuest[] = [
  ['HOST_DATA', RIGHT, snpOf(FILE), HOST],
  ['HOST_DATA, as the statement says', RIGHT, snpOf(FILE), HOST, DIGEST],
  ['HOST_DATA, and the statement says another', OTHER_LAUNCH, snpOf(FILE), HOST, LISTED],
  ['HOST_DATA, and the statement says one that nobody knows', OTHER_LAUNCH, snpOf(FILE), HOST, UNLISTED],
  ['HOST_DATA that nobody knows', OTHER_LAUNCH, snpOf(Buffer.alloc(32)), HOST],
  ['another MEASUREMENT', OTHER_GUEST, snpOf(FILE), { ...HOST, measurement: OTHER }],
  ['another privilege level', OTHER_GUEST, snpOf(FILE), { ...HOST, vmpl: [3] }],
  ['a measured launch file', RIGHT, snpOf(Buffer.alloc(32)), MEASURED, DIGEST],
  ['a measured launch file that nobody knows', OTHER_LAUNCH, snpOf(FILE), MEASURED, UNLISTED],
  ['a measured launch file that the statement does not name', OTHER_LAUNCH, snpOf(FILE), MEASURED],
  ['MRCONFIGID', RIGHT, tdxOf(LABEL), CONFIG],
  ['MRCONFIGID, as the statement says', RIGHT, tdxOf(LABEL), CONFIG, DIGEST],
  ['MRCONFIGID, and the statement says another', OTHER_LAUNCH, tdxOf(LABEL), CONFIG, LISTED],
  ['MRCONFIGID that goes on', OTHER_LAUNCH, tdxOf(LONG), CONFIG],
  ['MRCONFIGID of zeros', OTHER_LAUNCH, tdxOf(NOTHING), CONFIG],
  ['a TD’s measured launch file', RIGHT, tdxOf(LONG), MEASURED, DIGEST],
  ['an event', RIGHT, tdxOf(NOTHING, [event(FILE)]), RTMR3],
  ['an event, as the statement says', RIGHT, tdxOf(NOTHING, [event(FILE), before]), RTMR3, DIGEST],
  ['an event behind another', OTHER_LAUNCH, tdxOf(NOTHING, [before, event(FILE)]), RTMR3, DIGEST],
  ['an event behind one of RTMR2', RIGHT, tdxOf(NOTHING, [early, event(FILE)]), RTMR3, DIGEST],
  ['an event without its digest', RIGHT, withoutDigests(tdxOf(NOTHING, [event(FILE), before])), RTMR3, DIGEST],
  ['no event of RTMR3, which is extended', OTHER_LAUNCH, logOf([early], [early, before]), RTMR3],
  ['no event of RTMR3, which is extended and listed', RIGHT, logOf([early], [early, before]), CONFIG],
  ['no event of RTMR3, which is extended', RIGHT, logOf([early], [early, before]), { ...CONFIG, rtmr3: undefined }],
  ['one of two events of RTMR3', OTHER_LOG, logOf([before], [before, event(FILE)]), CONFIG],
  ['an event, and the statement says another', OTHER_LAUNCH, tdxOf(NOTHING, [event(FILE)]), RTMR3, LISTED],
  ['an event, any RTMR3', RIGHT, tdxOf(NOTHING, [event(FILE)]), { ...RTMR3, rtmr3: undefined }],
  ['an event, another RTMR3', OTHER_GUEST, tdxOf(NOTHING, [event(FILE)]), { ...RTMR3, rtmr3: OTHER }],
  ['an event in capitals', RIGHT, tdxOf(NOTHING, [loud]), RTMR3],
  ['an event twice', OTHER_LAUNCH, tdxOf(NOTHING, [event(FILE), event(FILE)]), RTMR3],
  ['an event and another', OTHER_LAUNCH, tdxOf(NOTHING, [event(FILE), event(Buffer.of())]), RTMR3],
  ['an event of another name', OTHER_LAUNCH, tdxOf(NOTHING, [before]), RTMR3],
  ['an event of RTMR2', OTHER_LAUNCH, tdxOf(NOTHING, [dstackEvent(2, 'countersign-launch', FILE)]), RTMR3],
  ['an event that nobody knows', OTHER_LAUNCH, tdxOf(LABEL, [event(sha256(UNLISTED))]), RTMR3],
  ['an event of 31 bytes', OTHER_LAUNCH, tdxOf(NOTHING, [event(FILE.subarray(1))]), RTMR3],
  ['an event of hex digits', OTHER_LAUNCH, tdxOf(NOTHING, [event(Buffer.from(DIGEST))]), RTMR3],
  ['no event', OTHER_LAUNCH, tdxOf(LABEL, []), RTMR3],
  ['no log', OTHER_LAUNCH, tdxOf(LABEL), RTMR3],
  ['no log, any RTMR3', OTHER_GUEST, tdxOf(LABEL), { ...CONFIG, rtmr3: undefined }],
  ['an event of another digest', OTHER_LOG, tdxOf(LABEL, [{ ...event(FILE), event_payload: LISTED }]), CONFIG],
  ['behind a vTPM', RIGHT, behindVtpm, { pcrs: { 4: [LISTED, PCRS[4]], 23: [PCRS[23]] } }, DIGEST],
  ['behind a vTPM, that nobody knows', OTHER_LAUNCH, behindVtpm, { pcrs: { 4: [PCRS[4]] } }, UNLISTED],
  ['behind a vTPM, that the statement does not name', OTHER_LAUNCH, behindVtpm, { pcrs: { 4: [PCRS[4]] } }],
  ['behind a vTPM, another PCR', OTHER_GUEST, behindVtpm, { pcrs: { 4: [PCRS[4]], 23: [PCRS[4]] } }, DIGEST],
];

/** Options with the list that a guest of {@link MADE} is compared with. */
export function knowing(session: Readonly<Record<string, unknown>>, guest: Guest): CpuReference {
  const [own] = ownOf(session as Record<string, string>);
  return listOf([{ ...own, ...guest }], LISTED, DIGEST);
}

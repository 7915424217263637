// The chain of a run: each request tells the model what it said before and what its tools returned. An exchange is joined to the one whose
// request and response its own request continues.
import { editsIn, type Kept } from './edits.ts';
import { type Finding, finding, named, plural } from './findings.ts';
import { type Conversation, hashOf, type Item } from './items.ts';
import { extended, isSaid, Known, type Run, type State } from './known.ts';

/** How an exchange hangs together with those before it. */
export interface Link {
  /** Counted from 1. */
  readonly run: number;
  /** The turn that it continues; null: a run begins. */
  readonly parent: number | null;
  /** What it tells that was not told before. */
  readonly fresh: readonly Item[];
  readonly findings: readonly Finding[];
}

interface Joined extends Omit<Link, 'run'> {
  /** null: a run begins. */
  readonly run: Run | null;
  readonly state: State | null;
}

const MAX_RUNS = 1000;
/** Of one run, whose service keeps the state. */
const MAX_TOLD = 20_000;

export class Chain {
  readonly #known = new Known();
  /** The least recently continued first. */
  readonly #runs = new Set<Run>();
  #count = 0;

  get runs(): number {
    return this.#count;
  }

  /** Exchanges are given in the order of the transcript, those only whose proof was not refused. @param turn counted from 1 */
  add(turn: number, exchange: Conversation): Link {
    const items = this.#known.resolved(exchange.items);
    const joined = this.#join(turn, exchange, items);
    const base = exchange.previous === null ? null : this.#known.byId(exchange.previous);
    const from = this.#known.begin(exchange.previous);
    const instructions = hashOf(...exchange.instructions.map(({ hash }) => hash));
    const root = items[0]?.hash ?? '';
    const head = null as unknown as State;
    const run = joined.run ?? { number: ++this.#count, root, told: [], first: 0, head, instructions };
    const isTold = joined.run !== null && run.instructions === instructions;
    const fresh = isTold ? joined.fresh : [...exchange.instructions, ...joined.fresh];
    const findings = [...joined.findings, ...changesIn(run, joined.state, exchange, instructions, base !== null)];
    if (joined.state !== null) joined.state.continued = true;
    const { responses, model, responseId } = exchange;
    const whole = items.reduce(extended, from);
    for (const [i, response] of responses.entries()) {
      const hash = response.reduce(extended, whole);
      const state: State = { turn, run, hash, model, open: callsIn(response), continued: false };
      const before = this.#known.claimant(hash) ?? this.#known.claimant(responseId);
      if (before !== null)
        findings.push(finding('out_of_order', `turn ${before} continues it, and stands before it in the file`));
      this.#known.add(state, response);
      if (i > 0) continue;
      run.head = state;
      this.#known.name(exchange, state);
    }
    keep(run, turn, items, responses[0] ?? [], base !== null);
    run.instructions = instructions;
    this.#touch(run, joined.run === null);
    return { run: run.number, parent: joined.parent, fresh, findings };
  }

  /** Calls that nothing answers, of runs that ended with them. */
  open(): Finding[] {
    return [...this.#runs].flatMap(({ head, number }) =>
      head.continued || head.open.size === 0
        ? []
        : finding(
            'calls_open',
            `run ${number} ends in turn ${head.turn} with ${plural(head.open.size, 'call')} that nothing answers`,
          ),
    );
  }

  #touch(run: Run, isNew: boolean): void {
    this.#runs.delete(run);
    this.#runs.add(run);
    if (isNew) this.#known.begins(run);
    const [oldest] = this.#runs;
    if (oldest === undefined || this.#runs.size <= MAX_RUNS) return;
    oldest.told = [];
    this.#runs.delete(oldest);
  }

  #join(turn: number, { previous, items: given }: Conversation, items: readonly Item[]): Joined {
    const base = previous === null ? null : this.#known.byId(previous);
    const findings: Finding[] = [];
    if (base !== null || given.some(({ kind }) => kind === 'reference')) findings.push(HIDDEN);
    if (previous !== null && base === null) {
      this.#known.claim(previous, turn);
      findings.push(finding('parent_unknown', 'it continues a response that no exchange before it in the file proves'));
      return { run: null, state: null, parent: null, fresh: items, findings };
    }
    const longest = this.#known.longest(this.#known.begin(previous), items);
    const state = longest.state ?? base;
    const fresh = items.slice(longest.length);
    if (state !== null && !fresh.some(isSaid)) {
      findings.push(...this.#asides(items, state.run), ...this.#judge(state.run, state.open, fresh));
      if (state.continued) findings.push(finding('branch', `a branch: turn ${state.turn} was continued before`));
      return { run: state.run, state, parent: state.turn, fresh, findings };
    }
    for (const [i, item] of items.entries()) if (isSaid(item)) this.#known.claim(longest.hashes[i] ?? '', turn);
    const history = items.some((item) => isSaid(item) || item.kind === 'result');
    const run = history ? (state?.run ?? this.#known.runOf(items)) : null;
    if (run === null)
      return { run, state: null, parent: null, fresh: items, findings: [...findings, ...before(items)] };
    const words = items.filter(({ kind }) => kind !== 'aside');
    const edits = editsIn(run.told, run.first, words, (item) => this.#known.said(item)?.run === run);
    const judged = this.#judge(run, toldAgain(run, items), edits.fresh);
    findings.push(...this.#asides(items, run), ...edits.findings, ...judged);
    return { run, state: run.head, parent: run.head.turn, fresh: [...edits.put, ...edits.fresh], findings };
  }

  /** Each result against the call that it answers, and what stands in the model's name that it did not say. */
  #judge(run: Run, calls: ReadonlyMap<string, number>, fresh: readonly Item[]): Finding[] {
    const findings: Finding[] = [];
    const open = new Map(calls);
    const done = new Set<string>();
    let answered = 0;
    for (const item of fresh) {
      const id = item.id ?? '';
      if (isSaid(item)) findings.push(this.#misplaced(item, run));
      if (item.kind === 'call') open.set(id, (open.get(id) ?? 0) + 1);
      if (item.kind !== 'result') continue;
      const left = open.get(id) ?? 0;
      if (left > 0) answered++;
      if (left > 0) open.set(id, left - 1);
      else if (done.has(id)) findings.push(finding('result_twice', `the call ${named(id)} has a second result`));
      else findings.push(finding('result_unasked', `a result for ${named(id)}, which no call of the model asked for`));
      done.add(id);
      findings.push(...receiptIn(item));
    }
    for (const [id, left] of open)
      if (left > 0)
        findings.push(finding('call_unanswered', `the model was asked to go on without the result of ${named(id)}`));
    if (answered > 1) findings.push(finding('parallel_calls', `results of ${answered} parallel calls`));
    return findings;
  }

  /** Reasoning, and what a service ran, that no response of the run had: each the first time that it is told. */
  #asides(items: readonly Item[], run: Run): Finding[] {
    const unsaid = items.filter((item) => item.kind === 'aside' && !this.#known.hasAside(run, item));
    const told = new Set(unsaid.length === 0 ? [] : run.told.map(({ hash }) => hash));
    return unsaid.flatMap(({ hash, name }) =>
      told.has(hash)
        ? []
        : finding('aside_changed', `${named(name)} stands in the history in words that no response of this run had`),
    );
  }

  #misplaced(item: Item, run: Run): Finding {
    const state = this.#known.said(item);
    const { kind, id, name } = item;
    const what = kind === 'call' ? `the call ${named(id ?? '')} of ${named(name)}` : 'an answer';
    if (state?.run === run)
      return finding('history_changed', `${what}, of turn ${state.turn}, stands in another place`);
    if (state !== null)
      return finding(
        'answer_replayed',
        `${what} of turn ${state.turn}, which is of run ${state.run.number}, stands in the history`,
      );
    return kind === 'call'
      ? finding('call_invented', `${what} stands in the history, and no proven response made it`)
      : finding('answer_invented', `${what} stands in the history, and no proven response holds it`);
  }
}

const HIDDEN = finding(
  'state_hidden',
  'the service added what it kept of earlier turns: that is not in what was signed, and only the id says which turn it is',
);

function callsIn(items: readonly Item[]): Map<string, number> {
  const calls = new Map<string, number>();
  for (const { kind, id } of items) if (kind === 'call') calls.set(id ?? '', (calls.get(id ?? '') ?? 0) + 1);
  return calls;
}

/** The calls of the last response, as far as an edited history has them, be it in another form. */
function toldAgain({ told, first }: Run, items: readonly Item[]): Map<string, number> {
  const ids = new Set(told.slice(first).flatMap(({ kind, id }) => (kind === 'call' ? [id] : [])));
  return callsIn(items.filter(({ kind, id }) => kind === 'call' && ids.has(id)));
}

/** A history that begins before the transcript does. */
function before(items: readonly Item[]): Finding[] {
  const count = (kind: Item['kind']) => items.filter((one) => one.kind === kind).length;
  const [answers, calls, results] = [count('answer'), count('call'), count('result')];
  const known = callsIn(items);
  const orphans = items.filter(({ kind, id }) => kind === 'result' && !known.has(id ?? ''));
  const what = `its history begins with ${plural(answers, 'answer')}, ${plural(calls, 'call')} and ${plural(results, 'result')}`;
  const told = `${what} that no exchange before it in the file proves`;
  return [
    ...orphans.map(({ id }) => finding('result_unasked', `a result for ${named(id ?? '')}, which no call asked for`)),
    ...(calls > 0 ? [finding('calls_before', told)] : answers > 0 ? [finding('answers_before', told)] : []),
  ];
}

function changesIn(
  run: Run,
  state: State | null,
  exchange: Conversation,
  instructions: string,
  added: boolean,
): Finding[] {
  const { model } = exchange;
  const findings: Finding[] = [];
  if (state?.model != null && model !== null && state.model !== model)
    findings.push(finding('model_changed', `by ${named(model)}; turn ${state.turn} was by ${named(state.model)}`));
  if (run.instructions !== instructions && (!added || exchange.instructions.length > 0))
    findings.push(finding('instructions_changed', 'its instructions are others than those of the turn before'));
  return findings;
}

/** @param added the service kept what was told before */
function keep(run: Run, turn: number, items: readonly Item[], response: readonly Item[], added: boolean): void {
  const known = new Map(added ? [] : run.told.map((one) => [one.hash, one]));
  const kept = ({ kind, hash, id, content, length }: Item): Kept =>
    known.get(hash) ?? { kind, hash, id, content, length, turn };
  if (added) run.told.push(...items.map(kept));
  else run.told = items.map(kept);
  run.first = run.told.length;
  run.told.push(...response.map(kept));
  const over = run.told.length - MAX_TOLD;
  if (over < MAX_TOLD) return;
  run.told.splice(0, over);
  run.first = Math.max(0, run.first - over);
}

/** Names of members that a tool's receipt has. Nothing in it is checked. */
const RECEIPT = /receipt|signature|attestation|proof|sha-?256|digest|hash/i;
const HASH = /^(sha256[:-])?([0-9a-f]{64}|[A-Za-z0-9+/_-]{43}=?)$/;
const MAX_RECEIPT = 1024 * 1024;

function receiptIn({ id, text }: Item): Finding[] {
  if (!text.startsWith('{') || text.length > MAX_RECEIPT) return [];
  try {
    const own = Object.entries(JSON.parse(text) as object);
    const members = own.flatMap(([name, value]) => [
      [name, value],
      ...Object.entries(Object(value)).filter(() => typeof value === 'object'),
    ]);
    const found = members.find(([name, value]) => RECEIPT.test(name) && HASH.test(String(value)));
    if (found === undefined) return [];
    return [
      finding(
        'receipt',
        `the result of ${named(id ?? '')} carries a receipt (${named(found[0])}), which is not judged`,
      ),
    ];
  } catch {
    return [];
  }
}

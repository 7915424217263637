// The code of Quickstart, Clients, Agents' runs, Verify, Audit and Watch, run from top to bottom as a stranger would: in a fresh copy of the
// repository, on Node 20, with empty caches of npm and pip, and what the registries have today. Beside it, what cannot be run here, by name.
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../support/harness.ts';
import { installPackages } from '../support/npm-packages.ts';
import { type Block, blocks, ROOT, read } from './markdown.ts';

const PAGES = [
  'docs/quickstart.md',
  'docs/clients.md',
  'docs/agents.md',
  'docs/verify.md',
  'docs/audit.md',
  'docs/watch.md',
  'docs/sealed.md',
];
/** A block may be left out for these alone. */
const REASONS = ['needs a real GPU', 'a fragment'];
const SERVICE = 'http://127.0.0.1:8080';
const STEP_MS = 240_000;
const STOP_MS = 10_000;

interface Step {
  readonly title: string;
  readonly command: string;
  /** Lines that must be in the output; one `…` in a line stands for anything. */
  readonly expected: readonly string[];
  /** Programs that stand between this command and the one before, by their names. */
  readonly files: Readonly<Record<string, string>>;
}

/** @throws {Error} for a block that is neither a command, a program with its name in the first line, nor an output */
function stepsOf(page: string, found: readonly Block[]): Step[] {
  const steps: Step[] = [];
  let files: Record<string, string> = {};
  for (const { language, text, line } of found) {
    const [, name] = /^(?:\/\/|#) (\w+\.(?:mjs|py))\n/.exec(text) ?? [];
    const last = steps.at(-1);
    if (language === 'sh') {
      steps.push({ title: `${page}:${line}: ${text.split('\n')[0]}`, command: text, expected: [], files });
      files = {};
    } else if ((language === 'js' || language === 'python') && name !== undefined) files[name] = text;
    else if (language === 'text' && last?.expected.length === 0)
      steps[steps.length - 1] = { ...last, expected: text.trimEnd().split('\n') };
    // Data, which a test of its own reads.
    else if (language === 'json') continue;
    else throw new Error(`${page}:${line}: a block ${language} that no test can run`);
  }
  if (Object.keys(files).length > 0) throw new Error(`${page}: nothing runs ${Object.keys(files)}`);
  return steps;
}

const all = PAGES.flatMap((page) => blocks(read(page)).map((block) => ({ page, ...block })));
const left = all.filter(({ notRun }) => notRun !== null);
const steps = PAGES.flatMap((page) =>
  stepsOf(
    page,
    all.filter((block) => block.page === page && block.notRun === null),
  ),
);

const tools = installPackages(
  fileURLToPath(new URL('../package/tools/package.json', import.meta.url)),
  'package-tools',
);
const git = spawnSync('git', ['-C', ROOT, 'rev-parse', 'HEAD']).status === 0;
const missing = !git
  ? ', SKIPPED: this is no git repository'
  : tools === null
    ? ', SKIPPED: npm cannot be reached'
    : '';

/** What a stranger's shell knows: where the registries are, and nothing of npm's, vitest's or this machine's user. */
function strangersEnvironment(home: string, node: string, port: number): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) =>
      !/^(npm_|VITEST|NODE_(OPTIONS|ENV|PATH)|CANARY_|PYTHON|VIRTUAL_ENV|XDG_)/i.test(name) ||
      /^npm_config_registry$/i.test(name),
  );
  const path = (process.env.PATH ?? '').split(delimiter).filter((part) => !part.includes('node_modules'));
  return {
    ...Object.fromEntries(own),
    HOME: home,
    // It says where npm's registry is.
    NPM_CONFIG_USERCONFIG: join(homedir(), '.npmrc'),
    PATH: [node, ...path].join(delimiter),
    PORT: String(port),
  };
}

/** A fresh copy of the last commit, an empty home, and a stranger's shell in it. */
class Stranger {
  readonly folder = mkdtempSync(join(tmpdir(), 'countersign-stranger-'));
  readonly #where = join(this.folder, 'where');
  readonly #variables = join(this.folder, 'variables');
  readonly #env: NodeJS.ProcessEnv;
  readonly #url: string;
  #cwd = join(this.folder, 'copy');
  #service: ChildProcess | null = null;

  constructor(port: number, node: string) {
    const home = join(this.folder, 'home');
    mkdirSync(home);
    writeFileSync(this.#variables, '');
    execFileSync('git', ['clone', '--quiet', '--no-hardlinks', ROOT, this.#cwd]);
    this.#env = strangersEnvironment(home, node, port);
    this.#url = `http://127.0.0.1:${port}`;
  }

  /** Another port, because 8080 may be taken here. */
  readonly #here = (text: string): string => text.replaceAll(SERVICE, this.#url);

  async run({ command, expected, files }: Step): Promise<{ code: number | string | null; output: string }> {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(this.#cwd, name), this.#here(text));
    const lasting = /^npm start$/m.test(command);
    // One shell to its end, of which folder and variables stay.
    const script = `set -e\n. ${this.#variables}\ntrap 'pwd > ${this.#where}; declare -p repo > ${this.#variables} 2> /dev/null || :' EXIT\n${this.#here(command)}`;
    const child = spawn('bash', ['-c', script], {
      cwd: this.#cwd,
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    let output = '';
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    const ready = new Promise<number>((resolve) => {
      for (const stream of [child.stdout, child.stderr])
        stream.setEncoding('utf8').on('data', (text: string) => {
          output += text;
          if (lasting && absent(output, expected).length === 0) resolve(0);
        });
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<string>((resolve) => {
      timer = setTimeout(() => resolve('too late'), STEP_MS);
    });
    // What lasts goes on in the first shell; the reader opens a second one where that began.
    if (lasting) this.#service = child;
    const code = await Promise.race(lasting ? [ended, ready, late] : [ended, late]);
    clearTimeout(timer);
    if (code === 'too late' && child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    else if (!lasting) this.#cwd = readFileSync(this.#where, 'utf8').trim();
    return { code, output };
  }

  /** Ctrl-C in the first shell. */
  async close(): Promise<void> {
    const service = this.#service;
    if (service?.pid !== undefined && service.exitCode === null) {
      const ended = new Promise((resolve) => service.once('close', resolve));
      process.kill(-service.pid, 'SIGINT');
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, STOP_MS))]);
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 });
  }
}

/** Which of the expected lines are not in the output. */
function absent(output: string, expected: readonly string[]): string[] {
  const lines = output.split('\n').map((line) => line.trimEnd());
  return expected.filter((wanted) => {
    const [begin = '', end] = wanted.trimEnd().split('…');
    return !lines.some((line) => (end === undefined ? line === begin : line.startsWith(begin) && line.endsWith(end)));
  });
}

describe.skipIf(missing !== '')(`the code of the pages${missing}`, () => {
  let reader: Stranger;
  let broken: string | null = null;

  beforeAll(async () => {
    reader = new Stranger(await freePort(), join(tools ?? '', 'node_modules/node-20/bin'));
  });
  afterAll(() => reader?.close());

  it.each(steps.map((step) => [step.title, step] as const))('%s', async (title, step) => {
    expect(broken, 'an earlier step that failed').toBe(null);
    broken = title;
    const began = performance.now();
    const { code, output } = await reader.run(step);
    expect({ absent: absent(output, step.expected), code }, output).toEqual({
      absent: [],
      code: step.expected.some((line) => line.startsWith('INVALID')) ? 1 : 0,
    });
    console.log(`${title}: ${((performance.now() - began) / 1000).toFixed(1)} s`);
    broken = null;
  });
});

describe('what is not run', () => {
  for (const { page, line, text, notRun } of left)
    it.skip(`${page}:${line}: ${text.split('\n')[0]} NOT RUN: ${notRun}`, () => {});

  it('is little, and each has a reason', () => {
    expect(left.map(({ notRun }) => notRun)).toEqual(left.map(() => expect.toBeOneOf(REASONS)));
    expect(left.length).toBeLessThan(3);
    expect(steps.length).toBeGreaterThan(15);
  });

  it.each([
    ['a program without its name', '```js\nconst a = 1;\n```'],
    ['a program that nothing runs', '```js\n// a.mjs\n```'],
    ['a language without a rule', '```json\n{}\n```'],
    ['an output of nothing', '```text\na\n```'],
  ])('cannot be %s', (_what, text) => {
    expect(() => stepsOf('page', blocks(text))).toThrow('page');
  });

  it('nor an output that did not come', () => {
    expect(absent('ready in 1.4 s\nVALID', ['ready in … s', 'VALID (level: none)'])).toEqual(['VALID (level: none)']);
  });
});

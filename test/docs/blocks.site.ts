// The code of Quickstart, Clients and Verify, run from top to bottom as a reader would: from an empty folder, on Node 20, with the packages as they
// are published, before the demo service. Beside it, what cannot be run here, by name.
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { installPackage } from '../package/installed.ts';
import { freePort } from '../support/harness.ts';
import { makeVenv } from '../support/venv.ts';
import { type Block, blocks, ROOT, read } from './markdown.ts';

const PAGES = ['docs/quickstart.md', 'docs/clients.md', 'docs/verify.md'];
/** A block may be left out for these alone. */
const REASONS = ['needs a real GPU', 'a fragment'];
const REPOSITORY = 'https://github.com/countersign/countersign';
const SERVICE = 'http://127.0.0.1:8080';
const REQUIREMENTS = join(ROOT, 'test/python/clients-requirements.txt');
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

const installed = installPackage();
const python = makeVenv(REQUIREMENTS, 'verifying-clients-venv');
const git = spawnSync('git', ['-C', ROOT, 'rev-parse', 'HEAD']).status === 0;
const missing = !git
  ? ', SKIPPED: this is no git repository'
  : installed === null || python === null
    ? ', SKIPPED: npm or PyPI cannot be reached'
    : '';

const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: Record<string, string> };

/** An empty folder, a reader's shell in it, and what stands in for what is not published yet. */
class Reader {
  readonly folder = mkdtempSync(join(tmpdir(), 'countersign-reader-'));
  readonly #where = join(this.folder, '.where');
  readonly #env: NodeJS.ProcessEnv;
  readonly #tarball: string;
  readonly #wheel: string;
  readonly #url: string;
  #cwd = this.folder;
  #service: ChildProcess | null = null;

  constructor(port: number, tools: string, tarball: string, wheel: string) {
    this.#tarball = tarball;
    this.#wheel = wheel;
    this.#url = `http://127.0.0.1:${port}`;
    // What npm and vitest tell their children is not the reader's.
    const own = Object.entries(process.env).filter(
      ([name]) => !/^(npm_(?!config_registry)|VITEST|NODE_(OPTIONS|ENV|PATH)|CANARY_)/i.test(name),
    );
    this.#env = {
      ...Object.fromEntries(own),
      PATH: [
        join(tools, 'node-20/bin'),
        ...(process.env.PATH ?? '').split(delimiter).filter((part) => !part.includes('node_modules')),
      ].join(delimiter),
      PORT: String(port),
      PIP_CONSTRAINT: REQUIREMENTS,
      PIP_DISABLE_PIP_VERSION_CHECK: '1',
      LANGSMITH_TRACING: 'false',
      // The published repository is this one, at its last commit.
      GIT_CONFIG_COUNT: '2',
      GIT_CONFIG_KEY_0: `url.${ROOT}.insteadOf`,
      GIT_CONFIG_VALUE_0: REPOSITORY,
      GIT_CONFIG_KEY_1: 'safe.directory',
      GIT_CONFIG_VALUE_1: '*',
    };
  }

  /** A free port, packages of this working tree, and clients of the versions that all tests use, in place of those that a reader gets. */
  #here(text: string): string {
    return text
      .replaceAll(SERVICE, this.#url)
      .replaceAll('npx @countersign/verify', `npx --yes --package=${this.#tarball} countersign`)
      .replace(/^npm install .+$/gm, (line) =>
        line
          .split(' ')
          .map((word) =>
            word === '@countersign/verify'
              ? this.#tarball
              : word in devDependencies
                ? `${word}@${devDependencies[word]}`
                : word,
          )
          .join(' '),
      )
      .replace(/^(\S+pip install .*)\bcountersign\b/gm, `$1${this.#wheel}`);
  }

  async run({ command, expected, files }: Step): Promise<{ code: number | string | null; output: string }> {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(this.#cwd, name), this.#here(text));
    const lasting = /^npm start$/m.test(command);
    const script = `set -e\ntrap 'pwd > ${this.#where}' EXIT\n${this.#here(command)}`;
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
  let reader: Reader;
  let broken: string | null = null;

  beforeAll(async () => {
    if (installed === null || python === null) return;
    const wheels = mkdtempSync(join(tmpdir(), 'countersign-wheel-'));
    execFileSync(python, ['-m', 'pip', 'wheel', '--quiet', '--no-deps', '--wheel-dir', wheels, join(ROOT, 'python')]);
    const wheel = join(wheels, readdirSync(wheels).find((name) => name.endsWith('.whl')) ?? '');
    reader = new Reader(await freePort(), installed.tools, installed.tarball, wheel);
  });
  afterAll(async () => {
    await reader?.close();
    installed?.remove();
  });

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

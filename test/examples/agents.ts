// A copy of examples/ beside the packages that its agents need.
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { installPackages } from '../support/npm-packages.ts';
import { ROOT } from './run.ts';

export interface Agents {
  /** The copy of examples/agents, as a folder to run in. */
  readonly folder: string;
  remove(): void;
}

/** null where npm's registry cannot be reached. @throws {Error} for everything else. */
export function installAgents(): Agents | null {
  const room = installPackages(join(ROOT, 'examples/agents/package.json'), 'examples-npm');
  if (room === null) return null;
  // Packages are looked for in the folders above, so a copy within finds them; two runs do not meet.
  const copy = join(room, `run-${process.pid}`);
  cpSync(join(ROOT, 'examples'), copy, { recursive: true, filter: (path) => !path.includes('node_modules') });
  return { folder: join(copy, 'agents'), remove: () => rmSync(copy, { recursive: true, force: true }) };
}

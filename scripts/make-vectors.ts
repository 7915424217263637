// Writes vectors/: for each check one attestation that passes and some that fail by that check alone, under test roots; their README and manifest.
// Only what is missing is written, because ECDSA signatures differ each time; --force makes everything anew, keys too.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ORDER } from '../verify/common/checks.ts';
import { BATCH_CASES } from './vectors/cases-batch.ts';
import { BUNDLE_CASES } from './vectors/cases-bundle.ts';
import { COLLATERAL_CASES } from './vectors/cases-collateral.ts';
import { DEVICE_CASES } from './vectors/cases-device.ts';
import { ENDPOINT_CASES } from './vectors/cases-endpoints.ts';
import { EXCHANGE_CASES } from './vectors/cases-exchange.ts';
import { LAUNCH_CASES } from './vectors/cases-launch.ts';
import { STREAM_CASES } from './vectors/cases-streams.ts';
import { TOKEN_CASES } from './vectors/cases-token.ts';
import { type Case, json, type Kit, makeKit } from './vectors/kit.ts';
import { manifestOf } from './vectors/manifest.ts';
import { readme } from './vectors/readme.ts';
import { keepIn } from './vectors/store.ts';
import type { Vector } from './vectors/vector.ts';
import { makeWorld } from './vectors/world.ts';

const folder = fileURLToPath(new URL('../vectors/', import.meta.url));
const MADE = ['keys', 'parts', 'cases'];

function write(path: string, make: () => string): string {
  const file = join(folder, path);
  if (existsSync(file)) return path;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, make());
  console.log(`made ${path}`);
  return path;
}

async function vectorOf({ check, code, make }: Case, kit: Kit): Promise<Vector> {
  const { description, options, skipped, level = 'none', ...input } = await make(kit);
  const expect =
    code === null
      ? { valid: true, level, skipped: skipped ?? [] }
      : { valid: false, level: 'none' as const, failed_check: check, code };
  return { description, check, ...input, options: { ...kit.options, ...options }, expect };
}

if (process.argv.includes('--force'))
  for (const made of MADE) rmSync(join(folder, made), { recursive: true, force: true });
const keep = keepIn(join(folder, 'keys'));
const kit = await makeKit(makeWorld(keep), write, keep);
const made: [string, Vector][] = [];
for (const one of [
  ...EXCHANGE_CASES,
  ...ENDPOINT_CASES,
  ...STREAM_CASES,
  ...BATCH_CASES,
  ...BUNDLE_CASES,
  ...TOKEN_CASES,
  ...DEVICE_CASES,
  ...COLLATERAL_CASES,
  ...LAUNCH_CASES,
]) {
  const path = `cases/${one.name}.json`;
  if (!existsSync(join(folder, path))) {
    const vector = await vectorOf(one, kit);
    write(path, () => json(vector));
  }
  made.push([one.name, JSON.parse(readFileSync(join(folder, path), 'utf8')) as Vector]);
}
const inOrder = made.toSorted(([, a], [, b]) => ORDER.indexOf(a.check) - ORDER.indexOf(b.check));
writeFileSync(join(folder, 'README.md'), readme(inOrder));
writeFileSync(join(folder, 'manifest.json'), json(manifestOf(folder, inOrder)));

// Builds the other side from Mozilla's crate `ohttp`, once, into .cache/ohttp: four minutes. It needs Rust (cargo) and crates.io.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const source = fileURLToPath(new URL('./peer', import.meta.url));
const target = fileURLToPath(new URL('../../.cache/ohttp', import.meta.url));
export const PEER = join(target, 'debug', 'ohttp-peer');

export default function setup(): void {
  console.log('building the peer of Mozilla’s ohttp: four minutes, once');
  try {
    execFileSync('cargo', ['build', '--locked', '--quiet', '--target-dir', target], { cwd: source, stdio: 'inherit' });
  } catch (cause) {
    throw new Error('the peer cannot be built: this command needs Rust (cargo) and crates.io', { cause });
  }
}

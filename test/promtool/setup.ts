// Builds Prometheus and promtool from their own Go module, once, into .cache/promtool: a few minutes. It needs Go and the module proxy.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// renovate: datasource=go depName=github.com/prometheus/prometheus
const VERSION = 'v0.311.0';
const folder = fileURLToPath(new URL(`../../.cache/promtool/${VERSION}`, import.meta.url));
export const PROMTOOL = join(folder, 'promtool');
export const PROMETHEUS = join(folder, 'prometheus');

export default function buildPrometheus(): void {
  if (existsSync(PROMTOOL) && existsSync(PROMETHEUS)) return;
  const env = { ...process.env, GOFLAGS: '', GOWORK: 'off' };
  const go = (args: string[], cwd = process.cwd()) => execFileSync('go', args, { encoding: 'utf8', cwd, env });
  console.log(`building prometheus and promtool ${VERSION}: a few minutes, once`);
  try {
    const { Dir } = JSON.parse(go(['mod', 'download', '-json', `github.com/prometheus/prometheus@${VERSION}`]));
    // It has replacements in its go.mod, so it builds only as the main module.
    const source = join(folder, 'source');
    mkdirSync(folder, { recursive: true });
    rmSync(source, { recursive: true, force: true });
    cpSync(Dir, source, { recursive: true });
    execFileSync('chmod', ['-R', 'u+w', source]);
    // Without the service discoveries, which are most of it.
    const build = ['build', '-buildvcs=false', '-tags', 'remove_all_sd', '-ldflags', '-s -w', '-o', folder];
    go([...build, './cmd/promtool', './cmd/prometheus'], source);
    rmSync(source, { recursive: true });
  } catch (cause) {
    throw new Error('Prometheus cannot be built: this command needs Go and its module proxy', { cause });
  }
}

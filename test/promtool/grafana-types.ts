// Reads a dashboard as Grafana's own types do: each part is compiled against the type that @grafana/schema publishes for it.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installPackages } from '../support/npm-packages.ts';

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const PANELS = '@grafana/schema/dist/esm/raw/composable';

/** The schema leaves a panel's options open in a dashboard; its composable parts have them. Members of enums stand in JSON as their values. */
const TYPES = `
import type { Dashboard, DataQuery, Panel, RowPanel } from '@grafana/schema';
import type { Options as StatOptions } from '${PANELS}/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TimeseriesOptions } from '${PANELS}/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Json<T> = T extends string ? \`\${T}\` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
interface Query extends DataQuery { expr: string; legendFormat: string }
interface Drawn<Type, Options> extends Omit<Panel, 'type' | 'options' | 'targets'> { type: Type; options: Options; targets: Query[] }
type Types = {
  row: Json<RowPanel>;
  stat: Json<Drawn<'stat', StatOptions>>;
  timeseries: Json<Drawn<'timeseries', TimeseriesOptions>>;
  board: Json<Omit<Dashboard, 'panels'>>;
};
`;

const OPTIONS = {
  noEmit: true,
  strict: true,
  skipLibCheck: true,
  target: 'es2023',
  types: [],
  module: 'preserve',
  moduleResolution: 'bundler',
};

export interface Board {
  readonly panels: readonly { readonly type: string }[];
}

/** What the compiler has to say: '' where the dashboard is one. @throws {Error} without npm's registry */
export function typeErrors({ panels, ...board }: Board): string {
  const folder = installPackages(at('package.json'), 'grafana-schema');
  if (folder === null) throw new Error("npm's registry cannot be reached: no schema of Grafana's");
  const room = mkdtempSync(join(folder, 'check-'));
  try {
    const parts = [{ type: 'board', part: board as object }, ...panels.map((part) => ({ type: part.type, part }))];
    // One constant each: the compiler refuses a member that the type does not have.
    const constants = parts.map(
      ({ type, part }, i) => `const part_${i}: Types['${type}'] = ${JSON.stringify(part)};\nvoid part_${i};`,
    );
    writeFileSync(join(room, 'board.ts'), [TYPES, ...constants].join('\n'));
    writeFileSync(join(room, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS, files: ['board.ts'] }));
    const { status, stdout, stderr } = spawnSync(process.execPath, [at('../../node_modules/.bin/tsc'), '-p', room], {
      encoding: 'utf8',
    });
    if (status === null) throw new Error(`the compiler did not run: ${stderr}`);
    return status === 0 ? '' : stdout;
  } finally {
    rmSync(room, { recursive: true, force: true });
  }
}

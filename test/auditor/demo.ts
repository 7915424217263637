// Demo engines with other weights, and a service over one of them, for the audit's tests.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createEngine } from '../../demo/engine/engine.ts';
import type { Matrix } from '../../demo/engine/linear.ts';
import { createModel, type Model } from '../../demo/engine/model.ts';
import { type RunningEngine, startEngine } from '../../demo/engine/server.ts';
import { startGateway, startSidecar, temporaryFolder } from '../support/harness.ts';

type Rounding = (row: Float32Array) => void;

/** To the nearest of 8 bits of mantissa. */
const bf16: Rounding = (row) => {
  const words = new Uint32Array(row.buffer, row.byteOffset, row.length);
  for (const [i, word] of words.entries()) words[i] = ((word + 0x7fff + ((word >>> 16) & 1)) & 0xffff0000) >>> 0;
};

/** To the nearest of `levels` on each side of zero, by the greatest of a group. */
const toLevels =
  (levels: number, group: number): Rounding =>
  (row) => {
    for (let from = 0; from < row.length; from += group) {
      const part = row.subarray(from, from + group);
      const step = part.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / levels;
      if (step > 0) for (const [i, value] of part.entries()) part[i] = Math.round(value / step) * step;
    }
  };

const ROUNDINGS = { bf16, int8: toLevels(127, 96), int4: toLevels(7, 32) };

export type Weights = number | keyof typeof ROUNDINGS;

/** The demo's model from another seed, or its own with rounded weights. */
export function modelOf(weights: Weights): Model {
  if (typeof weights === 'number') return createModel(weights);
  const model = createModel(7);
  const round = ({ data, cols }: Matrix): void => {
    for (let at = 0; at < data.length; at += cols) ROUNDINGS[weights](data.subarray(at, at + cols));
  };
  const { embedding, layers, head } = model.weights;
  for (const matrix of [embedding, head, ...layers.flatMap((layer) => Object.values(layer))]) round(matrix);
  return model;
}

export const startDemo = (weights: Weights = 7): Promise<RunningEngine> =>
  startEngine({ engines: [createEngine({ model: modelOf(weights) })] });

export interface DemoService {
  readonly url: string;
  readonly engine: string;
  readonly root: string;
  readonly folder: string;
  close(): Promise<void>;
}

/** A whole service over a demo engine with these weights. `root`: the file of the simulated GPU's root. */
export async function startDemoService(weights: Weights = 7): Promise<DemoService> {
  const folder = temporaryFolder();
  const engine = await startDemo(weights);
  const sidecar = await startSidecar(folder);
  const gateway = await startGateway({ BACKEND_URL: `${engine.url}/v1`, SIDECAR_SOCKET: sidecar.socket });
  const root = join(folder.path, 'root.pem');
  writeFileSync(root, sidecar.attester.simulated?.root ?? '');
  return {
    url: gateway.url,
    engine: engine.url,
    root,
    folder: folder.path,
    async close() {
      await gateway.close();
      await sidecar.close();
      await engine.close();
      folder.remove();
    },
  };
}

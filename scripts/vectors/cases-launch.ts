// Cases about the launch file of a guest, and the weights that it names (docs/attestation.md §7.13 and §7.14). A simulated processor signs, so
// the level is none.
import { hash } from 'node:crypto';
import { pem } from '../../demo/twin/authority.ts';
import { changed, LAUNCH_1, launchOf, REFUSED, WEIGHTS } from '../../test/support/launch-file.ts';
import { ALONE, type Case, fail, type Kit, type Made, pass } from './kit.ts';
import { attestIn } from './processor.ts';

const MEASUREMENT = 'a1'.repeat(48);
/** What Compose ignores is left out. */
const COMPOSE = changed((compose) => {
  for (const name of Object.keys(compose)) if (name.startsWith('x-')) delete compose[name];
});
const LAUNCH = launchOf(COMPOSE);

/** An answer of a guest that was started with this launch file, which is on the caller's list. */
async function started(kit: Kit, description: string, launch: string, weights?: string): Promise<Made> {
  const digest = hash('sha256', launch);
  const guest = { type: 'SEV_SNP', measurement: [MEASUREMENT], launch_in: 'host_data' } as const;
  const roots = () => kit.world.issuers.root.certificate.pem + pem(kit.processor.amd.ark);
  return {
    description,
    attestation: await attestIn(kit.processor, kit.world, launch),
    options: {
      simulated_root_file: kit.part('parts/device-and-processor-roots.pem', roots),
      cpu: {
        reference: { version: 1, cpu: [guest], launch: [digest] },
        ...(weights === undefined ? {} : { weights }),
      },
    },
    skipped: weights === undefined ? [...ALONE, 'cpu_weights'] : ALONE,
  };
}

const ofWeights = (what: string, code: 'weights_missing' | 'weights_mismatch', description: string, launch = LAUNCH) =>
  fail('cpu_weights', what, code, (kit) =>
    started(kit, description, launch, code === 'weights_missing' ? WEIGHTS.verity_root : 'ef'.repeat(32)),
  );
const malformed = (what: string, description: string, launch: string): Case =>
  fail('cpu_form', what, 'cpu_malformed', (kit) => started(kit, description, launch));
const refused = (index: number): string => launchOf(REFUSED[index]?.[1] ?? '');

export const LAUNCH_CASES: readonly Case[] = [
  pass('cpu_form', 'launch', (kit) => started(kit, 'the launch file holds its compose file and names weights', LAUNCH)),
  pass('cpu_form', 'launch-1', (kit) => started(kit, 'a launch file of version 1', LAUNCH_1)),
  malformed('launch-3', 'a launch file of version 3', LAUNCH.replace('"version":2', '"version":3')),
  malformed(
    'launch-digest',
    'compose_sha256 is that of another compose file',
    launchOf(COMPOSE, { compose_sha256: 'ab'.repeat(32) }),
  ),
  malformed(
    'launch-without-weights',
    'the compose file mounts weights that nobody names',
    launchOf(COMPOSE, { weights: [] }),
  ),
  malformed('launch-backend-elsewhere', 'the compose file has the gateway ask a backend elsewhere', refused(0)),
  malformed('launch-remote-code', 'the compose file has the backend fetch a model and its code', refused(1)),
  malformed('launch-entrypoint', 'the compose file starts another program in the backend', refused(2)),
  pass('cpu_weights', 'root', (kit) => started(kit, 'the weights that the caller names', LAUNCH, WEIGHTS.verity_root)),
  ofWeights('others', 'weights_mismatch', 'the caller names other weights'),
  ofWeights(
    'launch-1',
    'weights_missing',
    'the caller names weights, and a launch file of version 1 shows none',
    LAUNCH_1,
  ),
];

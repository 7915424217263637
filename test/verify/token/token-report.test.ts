// What a token says of GPUs and switches against what they signed: every device is spoken of, no matter who asked about it.
import { describe, expect, test } from 'vitest';
import { compareTokenWithReports } from '../../../verify/attestation.ts';
import type { DeviceClaims } from '../../../verify/gpu/topology.ts';
import type { ParsedToken, TokenDevice } from '../../../verify/token/token.ts';

const signed = (kind: 'gpu' | 'switch', ueid: string) =>
  ({ kind, ueid, model: 'M', driver: kind === 'gpu' ? '1.2' : null, vbios: '96.00.00.00.01' }) as DeviceClaims;
const said = (name: string, verifier: string | null, ueid: string) =>
  ({ name, verifier, ueid, driver: null, vbios: '96.00.00.00.01', hwmodel: 'M' }) as TokenDevice;
const compare = (devices: TokenDevice[], reports: DeviceClaims[]) =>
  compareTokenWithReports({ devices } as unknown as ParsedToken, reports);

const machine = [signed('gpu', '1'), signed('gpu', '2'), signed('switch', '3')];
const gpus = [said('GPU-0', 'LOCAL_GPU_CLAIMS', '1'), said('GPU-1', 'LOCAL_GPU_CLAIMS', '2')];
const nvswitch = said('SWITCH-0', 'LOCAL_SWITCH_CLAIMS', '3');

describe('a token and the reports of GPUs and switches', () => {
  test.each<[string, TokenDevice[], DeviceClaims[]]>([
    ['a verifier of GPUs beside one of switches', [...gpus, nvswitch], machine],
    ['one verifier of all', [...gpus, nvswitch].map((one) => ({ ...one, verifier: null })), machine],
    [
      'two verifiers of the same GPUs',
      [...gpus, ...gpus.map((one) => ({ ...one, verifier: 'B' }))],
      machine.slice(0, 2),
    ],
    ['a bare token of one switch', [said('GPU-0', null, '3')], machine.slice(2)],
  ])('agree: %s', (_what, devices, reports) => {
    expect(compare(devices, reports)).toMatchObject({ detail: expect.stringContaining("are the report's") });
  });

  test.each<[string, TokenDevice[], RegExp]>([
    ['nothing of the switch', gpus, /about 2 devices, the evidence of 3/],
    ['nothing of the GPUs', [nvswitch], /about 1 devices, the evidence of 3/],
    ['one of two GPUs', [gpus[0] as TokenDevice, nvswitch], /about 1 devices, the evidence of 2/],
    ['a GPU in the place of a switch', [...gpus, { ...nvswitch, ueid: '1' }], /SWITCH-0 is about a device that is not/],
    ['another switch', [...gpus, { ...nvswitch, ueid: '9' }], /SWITCH-0 is about a device that is not/],
    ['another BIOS of the switch', [...gpus, { ...nvswitch, vbios: '96.00.00.00.02' }], /another VBIOS for SWITCH-0/],
  ])('differ: the token says %s', (_what, devices, words) => {
    expect(() => compare(devices, machine)).toThrow(words);
  });
});

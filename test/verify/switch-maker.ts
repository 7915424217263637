// An attestation by a simulated NVSwitch alone.

import { chainPem, makeDevice, makeIssuers } from '../../demo/twin/pki.ts';
import { unsigned } from '../../scripts/vectors/tokens.ts';
import { NVSWITCH } from '../twin/models.ts';
import { makeReport } from '../twin/report.ts';
import { type Made, root } from './maker.ts';

/** The same exchange, signed by a switch and by no GPU. */
export async function byASwitch({ raw, nonce }: Made): Promise<Made> {
  const device = makeDevice(makeIssuers(root, NVSWITCH.chip));
  const report = await makeReport(Buffer.from(nonce, 'hex'), device.key, NVSWITCH.report({}));
  const chain = Buffer.from(chainPem(device)).toString('base64');
  const evidence = [{ arch: NVSWITCH.arch, report: report.toString('base64'), certificate_chain: chain }];
  return { raw, nonce, token: unsigned({ eat_nonce: nonce, iss: 'x' }), evidence };
}

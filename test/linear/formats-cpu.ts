// A processor's evidence, right except for what grows in it: quotes, signed texts, revocation lists, event logs, runtime data.

import { pem } from '../../demo/twin/authority.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { level, makeCollateral, makeIntel, makePck, makeQuote, svns } from '../../demo/twin/tdx.ts';
import type { CpuVerifyOptions } from '../../verify/cpu/cpu-options.ts';
import { makeCcel } from '../verify/cpu/ccel.ts';
import type { Format } from './grammar.ts';

const intel = makeIntel();
const pck = makePck(intel);
const amd = makeAmd('Genoa');
const leaf = makeLeaf(amd);
const report = makeSnpReport('Genoa', leaf);
const quote = makeQuote(intel, pck);
const collateral = makeCollateral(intel);

export const CPU_OPTIONS: CpuVerifyOptions = {
  at: new Date('2026-06-01T00:00:00Z'),
  roots: { amd: pem(amd.ark), intel: pem(intel.root) },
};

const base64 = (bytes: Uint8Array | string) => Buffer.from(bytes).toString('base64');
const tdx = (more: object) => JSON.stringify({ type: 'TDX', report: base64(quote), collateral, ...more });
const snp = (more: object) => JSON.stringify({ ...snpMember(report, [leaf, amd.ask], amdCrl(amd)), ...more });
const times = (n: number, size: number) => Math.max(1, Math.floor(n / size));
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};

/** Behind a paravisor, with this for its runtime data. */
function azure(text: string): string {
  const head = Buffer.concat([Buffer.from('HCLA'), u32(2), u32(0), u32(2), Buffer.alloc(16)]);
  const runtime = [u32(20 + text.length), u32(1), u32(2), u32(1), u32(text.length), Buffer.from(text)];
  const tail = Buffer.from(`00000001000b03ffffff0020${'00'.repeat(32)}`, 'hex');
  const message = Buffer.concat([Buffer.from('ff544347801800000000', 'hex'), Buffer.alloc(25), tail]);
  return snp({
    type: 'AZURE_SEV_SNP',
    report: base64(Buffer.concat([head, report, ...runtime])),
    tpm: { message: base64(message), signature: 'AAAA', pcrs: Array(24).fill('00'.repeat(32)) },
  });
}

const event = (imr: number) =>
  JSON.stringify({ imr, event_type: 1, digest: '00'.repeat(48), event: 'a', event_payload: 'ab' });

export const cpuFormats: readonly Format[] = [
  {
    name: 'CPU evidence',
    most: 40_000,
    encoding: 'utf8',
    productions: {
      'a quote with bytes behind it': (n) => tdx({ report: base64(Buffer.concat([quote, Buffer.alloc(n)])) }),
      'much authentication data': (n) => tdx({ report: base64(makeQuote(intel, pck, { authData: Buffer.alloc(n) })) }),
      'TCB info of many levels': (n) =>
        tdx({
          collateral: makeCollateral(intel, {
            tcbInfo: { tcbLevels: Array(Math.min(200, times(n, 700))).fill(level(svns(9), svns(), 1, 'UpToDate')) },
          }),
        }),
      'TCB info with a long text': (n) => tdx({ collateral: makeCollateral(intel, { tcbInfo: { x: 'x'.repeat(n) } }) }),
      "revoked PCK's": (n) =>
        tdx({
          collateral: makeCollateral(intel, { pckRevoked: Array.from({ length: times(n, 40) }, (_, i) => i % 9) }),
        }),
      'a CCEL of many events': (n) =>
        tdx({ event_log: base64(makeCcel(Array.from({ length: times(n, 90) }, () => [1, 1, Buffer.alloc(48)]))) }),
      'a log of many events in JSON': (n) => tdx({ event_log: base64(`[${Array(times(n, 160)).fill(event(0))}]`) }),
      'a log of many events of RTMR3': (n) => tdx({ event_log: base64(`[${Array(times(n, 160)).fill(event(3))}]`) }),
      'revoked authorities': (n) =>
        snp({
          collateral: {
            crl: base64(
              amdCrl(
                amd,
                Array.from({ length: times(n, 40) }, (_, i) => 4 + (i % 9)),
              ),
            ),
          },
        }),
      'text around certificates': (n) => snp({ certificates: base64(pem(leaf, amd.ask) + 'x\n'.repeat(n / 2)) }),
      'a session beside it': (n) => snp({ statement: 'x'.repeat(n) }),
      'long runtime data': (n) => azure(JSON.stringify({ keys: [], x: 'x'.repeat(n) })),
      'runtime data of many keys': (n) =>
        azure(JSON.stringify({ keys: Array(times(n, 20)).fill({ kid: 'HCLAkPub' }) })),
      'runtime data that is no JSON': (n) => azure('['.repeat(n)),
    },
  },
];

// NSCQ's types for koffi, as the headers in NVIDIA's Python package declare them (nscq_attestation.h, API 2.0.0).
import type { Koffi } from '../nvml/ffi.ts';

const UUID_BYTES = 16;
const CHAIN_BYTES = 0x1400;
const REPORT_BYTES = 0x2000;

/** nscq_attestation_report_t */
export interface Report {
  readonly report_size: number;
  readonly report: Uint8Array;
}
/** nscq_attestation_certificate_t */
export interface Chain {
  readonly cert_chain: Uint8Array;
  readonly cert_chain_size: number;
}

let types: ReturnType<typeof made> | undefined;

/** The same each time: koffi keeps types by name, for the life of the process. */
export function nscqTypes(koffi: Koffi): ReturnType<typeof made> {
  types ??= made(koffi);
  return types;
}

function made(koffi: Koffi) {
  const uuid = koffi.array('uint8', UUID_BYTES);
  const callback = (name: string, value: unknown) => koffi.proto(name, 'void', ['void *', 'int8', value, 'void *']);
  return {
    uuid,
    session: koffi.struct({ rc: 'int8', session: 'uintptr_t' }),
    onUuid: callback('countersign_on_uuid', 'void *'),
    onByte: callback('countersign_on_byte', 'int8'),
    onChain: callback(
      'countersign_on_chain',
      koffi.struct({ cert_chain: koffi.array('uint8', CHAIN_BYTES), cert_chain_size: 'uint32' }),
    ),
    onReport: callback(
      'countersign_on_report',
      koffi.struct({ report_size: 'uint32', report: koffi.array('uint8', REPORT_BYTES) }),
    ),
  };
}

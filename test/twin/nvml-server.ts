// Answers the stand-ins for NVML and NSCQ (nvml.c, nscq.c) over a Unix socket: the twin's devices, and reports over any nonce.
import { createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { TWIN } from '../../demo/twin/identity.ts';
import { chainPem, type Device } from '../../demo/twin/pki.ts';
import type { Faults } from './faults.ts';
import { H100, type Model, NVSWITCH } from './models.ts';
import { inNewFormat } from './new-format.ts';
import { makeReport, opaqueData } from './report.ts';

const PRODUCTION = 2;
const INVALID_ARGUMENT = 2;
const FUNCTION_NOT_FOUND = 13;
const UNKNOWN = 999;
/** The calls that need the driver's session with the GPU. */
const SPDM_CALLS = ['nvmlDeviceGetConfComputeGpuCertificate', 'nvmlDeviceGetConfComputeGpuAttestationReport'];
/** nscq_tnvl_status_t: trusted NVLink is enabled, and locked until the next reset. */
const TNVL_ENABLED = 1;
const TNVL_LOCKED = 3;

export interface NvmlServer {
  /** How often a report was collected. */
  readonly collected: number;
  /** Calls that a fault leaves without an answer, and that still wait for one. */
  readonly hanging: number;
  close(): Promise<void>;
}

class NvmlError extends Error {
  readonly code: number;
  constructor(code: number) {
    super(`NVML error ${code}`);
    this.code = code;
  }
}

export interface Machine {
  readonly devices: readonly Device[];
  /** Of every GPU; H100 by default. */
  readonly model?: Model;
  readonly switches?: readonly Device[];
}

export async function startNvmlServer(
  path: string,
  { devices, model = H100, switches = [] }: Machine,
  faults: Faults,
): Promise<NvmlServer> {
  const sockets = new Set<Socket>();
  const last_nonces = new Map<number, Buffer>();
  let collected = 0;
  let hanging = 0;
  let torn = false;

  async function report(index: number, asked: Buffer): Promise<Buffer> {
    collected++;
    if (faults.collection_ms > 0) await delay(faults.collection_ms);
    const nonce = faults.stale_nonce.has(index) ? (last_nonces.get(index) ?? Buffer.alloc(32, 7)) : asked;
    last_nonces.set(index, asked);
    const links = Array.from({ length: LINKS }, (_, link) => fabricId(0, link % switches.length));
    const fabric = switches.length > 0 ? { fabricIds: links } : {};
    const mode = faults.protected_pcie ? { protectedPcie: 0xaa, ...fabric } : {};
    const options = model.report({ ...mode, ...faults.report.get(index) });
    const opaque = faults.new_format ? { opaque: inNewFormat(options.opaque ?? opaqueData(options)) } : {};
    return makeReport(nonce, device(index).key, { ...options, ...opaque });
  }

  async function switchReport(index: number, asked: Buffer): Promise<Buffer> {
    collected++;
    if (faults.collection_ms > 0) await delay(faults.collection_ms);
    const nonce = faults.stale_switch_nonce.has(index) ? Buffer.alloc(32, 7) : asked;
    const ids = { fabricIds: [fabricId(0, index)], gpuIds: devices.map((_, gpu) => fabricId(1, gpu)) };
    return makeReport(nonce, switchAt(index).key, NVSWITCH.report({ ...ids, ...faults.switch_report.get(index) }));
  }

  function switchAt(index: number): Device {
    const found = switches[index];
    if (found === undefined) throw new NvmlError(INVALID_ARGUMENT);
    return found;
  }

  function device(index: number): Device {
    const found = devices[index];
    if (found === undefined) throw new NvmlError(INVALID_ARGUMENT);
    return found;
  }

  const mode = () => [PRODUCTION, faults.cc === 'on' ? 1 : 0, faults.devtools === 'on' ? 1 : 0] as const;

  const functions: Record<string, (index: number, nonce: Buffer) => Buffer | Promise<Buffer>> = {
    nvmlInit: () => Buffer.alloc(0),
    nvmlSystemGetDriverVersion: () => Buffer.from(TWIN.driver_version),
    nvmlSystemGetNVMLVersion: () => Buffer.from(`00.${TWIN.driver_version}`),
    nvmlDeviceGetCount: () => numbers(devices.length),
    nvmlDeviceGetHandleByIndex: () => numbers(devices.length),
    nvmlDeviceGetName: () => Buffer.from(model.name),
    nvmlDeviceGetUUID: (index) => Buffer.from(`GPU-00000000-0000-0000-0000-${index.toString(16).padStart(12, '0')}`),
    nvmlDeviceGetVbiosVersion: () => Buffer.from(TWIN.vbios_version),
    nvmlDeviceGetBoardId: (index) => numbers(index),
    nvmlDeviceGetArchitecture: () => numbers(model.architecture),
    nvmlSystemGetConfComputeState: () => numbers(...mode()),
    nvmlSystemGetConfComputeSettings: () => numbers(...mode(), faults.protected_pcie ? 1 : 0),
    nvmlSystemGetConfComputeCapabilities: () => numbers(1, 1),
    nvmlSystemGetConfComputeGpusReadyState: () => numbers(faults.ready ? 1 : 0),
    nvmlDeviceGetConfComputeGpuCertificate: (index) => Buffer.from(chainPem(device(index))),
    nvmlDeviceGetConfComputeGpuAttestationReport: report,
    nscq_session_create: () => Buffer.alloc(0),
    switches: () => numbers(faults.no_switches ? 0 : switches.length),
    'id/arch': () => numbers(faults.switch_architecture),
    'config/pcie_mode': () => numbers(faults.switches_locked ? TNVL_LOCKED : TNVL_ENABLED),
    'config/certificate': (index) => Buffer.from(chainPem(switchAt(index))),
    'config/attestation_report': switchReport,
  };

  async function answer(line: string): Promise<Buffer | null> {
    const [name = '', index = '', nonce = ''] = line.split(' ');
    if (faults.hang.has(name)) return null;
    try {
      const fault = torn && SPDM_CALLS.includes(name) ? UNKNOWN : faults.nvml.get(name);
      if (fault !== undefined && faults.tears_down && SPDM_CALLS.includes(name)) {
        torn = true;
        faults.ready = false;
      }
      if (fault !== undefined) throw new NvmlError(fault);
      const run = functions[name];
      if (run === undefined) throw new NvmlError(FUNCTION_NOT_FOUND);
      const bytes = await run(Number(index), Buffer.from(nonce, 'hex'));
      return Buffer.concat([numbers(0, bytes.length), bytes]);
    } catch (error) {
      if (!(error instanceof NvmlError)) throw error;
      return numbers(error.code, 0);
    }
  }

  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => socket.destroy());
    let line = '';
    socket.setEncoding('utf8').on('data', async (text) => {
      line += text;
      if (!line.endsWith('\n')) return;
      const bytes = await answer(line.trim());
      if (bytes !== null) return socket.end(bytes);
      hanging++;
      socket.once('close', () => hanging--);
    });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    get collected() {
      return collected;
    },
    get hanging() {
      return hanging;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Of an H100 to its switches. */
const LINKS = 18;

/** Of a switch (kind 0) or a GPU (kind 1), as the switch writes it. */
const fabricId = (kind: number, index: number) => Buffer.from([0x53, 0x49, 0x4d, 0, 0, kind, 0, index + 1]);

/** 32 bits each, little-endian: the order of every machine these tests run on. */
function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeInt32LE(value, i * 4);
  });
  return bytes;
}

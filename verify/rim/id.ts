// The names under which NVIDIA's RIM service files its documents, put together from the signed opaque data.

export interface BiosIdParts {
  readonly project: string;
  readonly projectSku: string;
  readonly chipSku: string;
  /** Five pairs of hexadecimal digits: `96.00.9F.00.01`. */
  readonly version: string;
}

/** `NV_GPU_DRIVER_GH100_550.90.07` on Hopper; `NV_GPU_CC_DRIVER_…` with the chip that the report names since Blackwell. */
export function driverRimId(arch: string, chip: string, version: string): string {
  return arch === 'HOPPER' ? `NV_GPU_DRIVER_GH100_${version}` : `NV_GPU_CC_DRIVER_${chip}_${version}`;
}

/** `NV_GPU_VBIOS_1010_0200_882_96009F0001` */
export function vbiosRimId(parts: BiosIdParts): string {
  return `NV_GPU_VBIOS_${biosId(parts)}`;
}

/** `NV_SWITCH_BIOS_5612_0002_890_9610550001` */
export function switchBiosRimId(parts: BiosIdParts): string {
  return `NV_SWITCH_BIOS_${biosId(parts)}`;
}

function biosId({ project, projectSku, chipSku, version }: BiosIdParts): string {
  return [project, projectSku, chipSku, version.replaceAll('.', '')].join('_').toUpperCase();
}

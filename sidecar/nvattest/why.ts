// Why NVIDIA's verifier said no: result 11 and 12 name no reason, but the claims beside them do.

/** Reasons are for people: enough of them to see where to look. */
const MAX_REASONS = 6;
const MAX_DEVICES = 64;

/** "GPU 0: measurements 9, 52 differ; ocsp revoked", or '' where the claims do not say. @param output what nvattest printed. */
export function whyRefused(output: unknown): string {
  const claims = isRecord(output) && Array.isArray(output.claims) ? output.claims : [];
  return claims
    .slice(0, MAX_DEVICES)
    .map((device: unknown, i) => [i, isRecord(device) ? reasonsOf(device) : []] as const)
    .filter(([, reasons]) => reasons.length > 0)
    .map(([i, reasons]) => `GPU ${i}: ${reasons.slice(0, MAX_REASONS).join('; ')}`)
    .join('. ');
}

function reasonsOf(device: Readonly<Record<string, unknown>>): string[] {
  const reasons: string[] = [];
  const different = device['x-nvidia-mismatch-measurement-records'];
  if (Array.isArray(different))
    reasons.push(`measurements ${different.slice(0, 8).map(indexOf).join(', ')} differ from the reference values`);
  else if (device.measres !== undefined && device.measres !== 'success')
    reasons.push(`measres ${word(device.measres)}`);
  if (Array.isArray(device['x-nvidia-mismatch-opaque-data-records'])) reasons.push('opaque data differs');
  if (device.dbgstat !== undefined && device.dbgstat !== 'disabled') reasons.push(`dbgstat ${word(device.dbgstat)}`);
  for (const [name, value] of Object.entries(device)) {
    const short = word(name.replace(/^x-nvidia-(gpu-)?/, ''));
    if (value === false) reasons.push(`${short} is false`);
    if (!isRecord(value) || !name.endsWith('-cert-chain')) continue;
    const status = value['x-nvidia-cert-status'];
    const revocation = value['x-nvidia-cert-ocsp-status'];
    if (status !== 'valid') reasons.push(`${short} ${word(status)}`);
    if (revocation !== 'good') reasons.push(`${short}: ocsp ${word(revocation)}`);
  }
  return reasons;
}

const indexOf = (record: unknown) => (isRecord(record) && typeof record.index === 'number' ? record.index : '?');
const word = (value: unknown) =>
  String(value)
    .replace(/[^\w .:-]/g, '')
    .slice(0, 64);
const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

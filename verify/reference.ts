// A device's endorsements and reference values: its RIMs found and verified, certificates asked about, measurements compared.
import { equal } from './bytes.ts';
import { CheckFailure } from './checks.ts';
import type { OcspQuery, RimQuery } from './collateral.ts';
import type { Context } from './context.ts';
import { type DeviceIdentity, rimIds } from './nvidia/device.ts';
import { verifyOcsp } from './ocsp/verify.ts';
import { type MatchedMeasurements, matchMeasurements, type Rim, verifyRim } from './rim/index.ts';
import type { Report } from './spdm/report.ts';
import type { Certificate } from './x509/certificate.ts';

export interface ReferenceValues {
  readonly driver: Rim | null;
  readonly vbios: Rim;
  /** What was asked for to find them. */
  readonly asked: readonly RimQuery[];
}

/** @throws {CheckFailure} rim_unavailable, and what verifyRim throws. */
export async function findReferenceValues(
  identity: DeviceIdentity,
  report: Report,
  context: Context,
): Promise<ReferenceValues> {
  const ids = rimIds(identity, report.opaque);
  const { driverVersion, vbiosVersion } = report.opaque;
  if (ids === null || vbiosVersion === null)
    throw new CheckFailure('rim_unavailable', 'the report does not say which reference values are its');
  const { chip } = identity;
  const ofDriver =
    ids.driver === null || driverVersion === null ? null : { id: ids.driver, version: driverVersion, chip };
  const ofVbios = { id: ids.vbios, version: vbiosVersion, chip };
  const [driver, vbios] = await inOrder([
    ofDriver === null ? null : findRim(ofDriver, 'driver', context),
    findRim(ofVbios, identity.kind === 'switch' ? 'switch-bios' : 'vbios', context),
  ]);
  return { driver, vbios, asked: ofDriver === null ? [ofVbios] : [ofDriver, ofVbios] };
}

/** Like `Promise.all`, but where several fail it is the first of the list that is told: the same one each time. */
async function inOrder<A, B>(all: readonly [A | Promise<A>, B | Promise<B>]): Promise<[A, B]> {
  await Promise.allSettled(all);
  return [await all[0], await all[1]];
}

async function findRim(query: RimQuery, kind: Rim['kind'], context: Context): Promise<Rim> {
  const { id } = query;
  const document = await available('rim_unavailable', id, () => context.collateral.rim(query));
  return orRefused([query], context, async () => {
    const rim = await verifyRim(document, { roots: context.rimRoots, at: context.clocks.rim });
    // How NVIDIA marks a switch's RIM has not been seen: version, signer and measurements tell its BIOS from a GPU's.
    const isDriver = rim.kind === 'driver';
    if (isDriver !== (kind === 'driver'))
      throw new CheckFailure('rim_mismatch', `what came for ${id} is a RIM of another kind`);
    return rim;
  });
}

/** What a service answers wrongly once must not be what is believed of it from then on. */
async function orRefused<T>(
  queries: readonly (RimQuery | OcspQuery)[],
  { collateral }: Context,
  check: () => T | Promise<T>,
): Promise<T> {
  try {
    return await check();
  } catch (error) {
    await Promise.all(queries.map((query) => collateral.refused?.(query)));
    throw error;
  }
}

/** @throws {CheckFailure} measurement_mismatch, rim_mismatch. */
export function compare(
  { driver, vbios, asked }: ReferenceValues,
  identity: DeviceIdentity,
  { blocks, opaque }: Report,
  context: Context,
): Promise<MatchedMeasurements> {
  return orRefused(asked, context, () =>
    matchMeasurements(driver === null ? { vbios } : { driver, vbios }, blocks, {
      ...(opaque.driverVersion === null ? {} : { driverVersion: opaque.driverVersion }),
      vbiosVersion: opaque.vbiosVersion ?? '',
      // Of Hopper it is known what its RIMs call their product.
      ...(identity.arch === 'HOPPER' ? { product: identity.chip } : {}),
      nvdec0Disabled: opaque.nvdec0Disabled === true,
      svns: opaque.svns,
    }),
  );
}

/**
 * Asks about every certificate of a device's path but its leaf, which the boot ROM issues at each start and no responder
 * knows, and but its root; and about those who signed its reference values.
 * @returns how many certificates were good. @throws {CheckFailure}
 */
export async function checkRevocation(
  path: readonly Certificate[],
  rims: ReferenceValues | null,
  context: Context,
): Promise<number> {
  const { collateral, clocks } = context;
  const questions = [
    ...pairs(path.slice(1), clocks.ocsp),
    ...pairs(rims?.driver?.signer ?? [], clocks.rimOcsp),
    ...pairs(rims?.vbios.signer ?? [], clocks.rimOcsp),
  ];
  const distinct = questions.filter(
    ({ certificate }, i) => questions.findIndex((other) => equal(other.certificate.der, certificate.der)) === i,
  );
  const answers = distinct.map(async (query) => {
    const { certificate, issuer, at } = query;
    const what = `the status of '${certificate.subjectCommonName}'`;
    const { response, nonce } = await available('revocation_unavailable', what, () => collateral.ocsp(query));
    await orRefused([query], context, () => verifyOcsp(response, certificate, issuer, { at, nonce }));
  });
  // All of them, so that which one fails does not depend on which one is fast.
  for (const result of await Promise.allSettled(answers)) if (result.status === 'rejected') throw result.reason;
  return answers.length;
}

function pairs(path: readonly Certificate[], at: Date) {
  return path.flatMap((certificate, i) => {
    const issuer = path[i + 1];
    return issuer === undefined ? [] : [{ certificate, issuer, at }];
  });
}

/** What the network or a collateral of the caller's throws is absence, with its reason. */
async function available<T>(
  code: 'rim_unavailable' | 'revocation_unavailable',
  what: string,
  get: () => Promise<T | null>,
): Promise<T> {
  let got: T | null;
  try {
    got = await get();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.replace(/[^ -~]/g, '?').slice(0, 200) : 'no reason given';
    throw new CheckFailure(code, `${what} could not be had: ${reason}`, { cause });
  }
  if (got === null) throw new CheckFailure(code, `${what} is not at hand`);
  return got;
}

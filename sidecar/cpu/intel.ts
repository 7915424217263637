// Gets the endorsements of a TDX quote from Intel's Provisioning Certification Service (PCS), version 4, or a caching service (PCCS)
// with the same paths. They are fetched daily, kept on disk, and used until they expire; the verifier checks them at each use.
import { JsonTextError, type Member, topLevelMembers } from '../../proto/json.ts';
import { appraiseCpu, type CpuReport, type TdxCollateral } from '../../verify/cpu.ts';
import { collateralEnd, parseTdxQuote } from '../../verify/service.ts';
import type { AttesterError } from '../common/attester.ts';
import { INTEL_PCS_URL } from '../common/config.ts';
import { until } from '../common/lock.ts';
import { refused, unavailable } from './cpu-collector.ts';
import {
  createService,
  createStore,
  type EndorsementOptions,
  type Get,
  iso,
  isWithin,
  type Kept,
} from './endorsements.ts';

interface IntelOptions extends EndorsementOptions {
  readonly pcs_url: string;
}

export interface IntelCollateral {
  /**
   * Kept collateral is returned at once, and fetched again in the background where it is due.
   * @throws {AttesterError} cpu_unavailable: no valid collateral is available. cpu_refused: the quote itself is invalid.
   * @throws what `signal` was aborted with.
   */
  endorse(evidence: { readonly report: Buffer }, signal: AbortSignal): Promise<{ readonly collateral: TdxCollateral }>;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Collateral that was valid when last checked. */
interface Held {
  readonly collateral: TdxCollateral;
  readonly fetched_ms: number;
  readonly expires_ms: number;
}

/** How Intel's services identify a processor. */
interface Platform {
  readonly fmspc: string;
  /** Which authority issued its PCK certificate. */
  readonly ca: 'platform' | 'processor';
}

export function createIntelCollateral(options: IntelOptions): IntelCollateral {
  const { pcs_url, now_ms = Date.now, onFailure = () => {}, roots } = options;
  const base = pcs_url.replace(/\/+$/, '');
  const store = createStore(options);
  const service = createService<Held>(options);

  function appraise(report: Buffer, collateral?: TdxCollateral): Promise<CpuReport> {
    const evidence = { type: 'TDX', report: report.toString('base64') };
    const at = new Date(now_ms());
    return appraiseCpu(collateral === undefined ? evidence : { ...evidence, collateral }, {
      at,
      roots: { intel: roots },
    });
  }

  /** Read from the quote's PCK certificate, once it is verified up to Intel's root. @throws {AttesterError} */
  async function platformOf(report: Buffer): Promise<Platform> {
    const { checks, claims } = await appraise(report);
    const failure = checks.find(({ name, status }) => status === 'fail' && QUOTE_CHECKS.has(name));
    if (failure !== undefined || claims?.fmspc == null) throw refused(`${failure?.code}: ${failure?.detail}`);
    const authority = parseTdxQuote(new Uint8Array(report)).chain[1]?.subjectCommonName ?? '';
    return { fmspc: claims.fmspc, ca: authority.endsWith('Processor CA') ? 'processor' : 'platform' };
  }

  /** The first failure in words, or null. Collateral that calls the platform revoked or out of date is valid; the verifier decides. */
  async function firstFailure(report: Buffer, collateral: TdxCollateral): Promise<string | null> {
    const { checks } = await appraise(report, collateral);
    const failure = checks.find(({ code }) => code !== undefined && COLLATERAL_FAILURES.has(code));
    return failure === undefined ? null : `${failure.code}: ${failure.detail}`;
  }

  async function kept(id: string, report: Buffer): Promise<Held | null> {
    const found = await store.read(id);
    if (found === null) return null;
    const held = read(found);
    const failure = held === null ? 'it cannot be read' : await firstFailure(report, held.collateral);
    if (failure === null) return held;
    // The collateral stays until it is replaced: the cause may be that our clock is wrong.
    onFailure(`the kept ${id} is not used (${failure})`);
    return null;
  }

  /** @throws {AttesterError} */
  function fetched(id: string, platform: Platform, report: Buffer): Promise<Held> {
    return service.fetchOnce(id, async (get) => {
      const collateral = await fetchCollateral(get, base, platform);
      const failure = await firstFailure(report, collateral);
      if (failure !== null) throw unavailable(`${new URL(base).host} gave collateral that cannot be used (${failure})`);
      const entry = { bytes: Buffer.from(JSON.stringify(collateral)), fetched_ms: now_ms() };
      await store.write(id, entry);
      return { ...entry, collateral, expires_ms: collateralEnd(collateral).getTime() };
    });
  }

  /** Daily, and hourly on the last day: a caching service may return collateral that is about to expire. */
  function isDue(held: Held): boolean {
    const interval_ms = held.expires_ms - now_ms() < DAY_MS ? HOUR_MS : DAY_MS;
    return !isWithin(interval_ms, held.fetched_ms, now_ms());
  }

  return {
    async endorse({ report }, signal) {
      signal.throwIfAborted();
      const platform = await platformOf(report);
      const id = `collateral of FMSPC ${platform.fmspc} under the ${platform.ca} CA`;
      let held = await kept(id, report);
      if (held === null) held = await until(fetched(id, platform, report), signal);
      else if (isDue(held)) {
        const { expires_ms: end_ms } = held;
        fetched(id, platform, report).catch((error: AttesterError) =>
          onFailure(`what is kept is used until ${iso(end_ms)}: ${error.message}`),
        );
      }
      return { collateral: held.collateral };
    },
  };
}

const QUOTE_CHECKS: ReadonlySet<string> = new Set(['cpu_form', 'cpu_signature', 'cpu_chain']);
const COLLATERAL_FAILURES: ReadonlySet<string> = new Set([
  'cpu_malformed',
  'collateral_invalid',
  'collateral_expired',
  'revocation_invalid',
]);

/** null: the file is not one that this version writes. */
function read({ bytes, fetched_ms }: Kept): Held | null {
  try {
    const collateral = JSON.parse(bytes.toString()) as TdxCollateral;
    return { collateral, fetched_ms, expires_ms: collateralEnd(collateral).getTime() };
  } catch {
    return null;
  }
}

// The service: four requests, whose responses become the collateral's nine members.

/** Half of the verifier's own limit. */
const MAX_TEXT_BYTES = 256 * 1024;
const MAX_CRL_BYTES = 1024 * 1024;
/** Intel's own service does not serve the root's revocation list; a PCCS does. */
const INTEL_ROOT_CRL_URL = 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der';

/** @throws {AttesterError} */
async function fetchCollateral(get: Get, base: string, { fmspc, ca }: Platform): Promise<TdxCollateral> {
  const rootUrl = base === INTEL_PCS_URL ? INTEL_ROOT_CRL_URL : `${base}/sgx/certification/v4/rootcacrl`;
  const [tcb, qe, pckCrl, rootCrl] = await Promise.all([
    get(`${base}/tdx/certification/v4/tcb?fmspc=${fmspc}&update=standard`, MAX_TEXT_BYTES),
    get(`${base}/tdx/certification/v4/qe/identity?update=standard`, MAX_TEXT_BYTES),
    get(`${base}/sgx/certification/v4/pckcrl?ca=${ca}&encoding=der`, MAX_CRL_BYTES),
    get(rootUrl, MAX_CRL_BYTES),
  ]);
  try {
    const [tcbInfo, qeIdentity] = [signedText(tcb.bytes, 'tcbInfo'), signedText(qe.bytes, 'enclaveIdentity')];
    return {
      tcb_info: tcbInfo.text,
      tcb_info_signature: tcbInfo.signature,
      tcb_info_issuer_chain: chainIn(tcb.headers, 'TCB-Info-Issuer-Chain', 'SGX-TCB-Info-Issuer-Chain'),
      qe_identity: qeIdentity.text,
      qe_identity_signature: qeIdentity.signature,
      qe_identity_issuer_chain: chainIn(qe.headers, 'SGX-Enclave-Identity-Issuer-Chain'),
      pck_crl: hexOfList(pckCrl.bytes),
      pck_crl_issuer_chain: chainIn(pckCrl.headers, 'SGX-PCK-CRL-Issuer-Chain'),
      root_ca_crl: hexOfList(rootCrl.bytes),
    };
  } catch (cause) {
    if (!(cause instanceof ResponseError)) throw cause;
    throw unavailable(`${new URL(base).host} gave something else than collateral: ${cause.message}`, { cause });
  }
}

/** A response does not follow the service's specification. */
class ResponseError extends Error {
  override readonly name = 'ResponseError';
}

/** `{"tcbInfo":{…},"signature":"…"}`: the signature is over the value's exact text, which is sliced out and never serialized again. */
function signedText(body: Buffer, name: 'tcbInfo' | 'enclaveIdentity'): { text: string; signature: string } {
  const whole = body.toString();
  const members = membersOf(whole);
  const textOf = (key: string): string => {
    const [found, ...more] = members.filter((member) => member.key === key);
    if (found === undefined || more.length > 0) throw new ResponseError(`it has not one member ${key}`);
    return whole.slice(found.valueStart, found.valueEnd);
  };
  const [, signature] = /^"([0-9A-Fa-f]+)"$/.exec(textOf('signature')) ?? [];
  if (signature === undefined) throw new ResponseError('its signature is not written in hex');
  return { text: textOf(name), signature };
}

/** topLevelMembers decodes names, which fails where the text is no JSON. */
function membersOf(text: string): Member[] {
  try {
    return topLevelMembers(text);
  } catch (cause) {
    if (!(cause instanceof JsonTextError || cause instanceof SyntaxError)) throw cause;
    throw new ResponseError('it is not a JSON object', { cause });
  }
}

/** The PEM in the first of these headers that is present. */
function chainIn(headers: Headers, ...names: readonly [string, ...string[]]): string {
  const value = names.map((name) => headers.get(name)).find((header) => header !== null);
  if (value === undefined || value === null) throw new ResponseError(`it has no header ${names[0]}`);
  try {
    return decodeURIComponent(value);
  } catch (cause) {
    throw new ResponseError(`its header ${names[0]} is not URL-encoded`, { cause });
  }
}

/** A revocation list's DER in hex; a PCCS sends the root's list as hex digits, other services send PEM. */
function hexOfList(body: Buffer): string {
  const text = body.toString('latin1').trim();
  if (/^[0-9A-Fa-f]+$/.test(text)) return text.toLowerCase();
  const [, base64] = /^-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----$/.exec(text) ?? [];
  return (base64 === undefined ? body : Buffer.from(base64, 'base64')).toString('hex');
}

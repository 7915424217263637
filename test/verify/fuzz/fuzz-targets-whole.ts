// The whole verification: an attestation, a response that carries one, bare evidence, the transcript of a stream.
//
// What may change while the verdict stays, because nobody signed it: members that are not known; white space of JSON; base64's
// unused last bits and what a PEM text holds between its blocks; of a self-asserted token, what fuzz-targets-text.ts lists.
// Bare evidence of fewer devices is evidence of those. In a transcript: comments, lines that are not data, how lines end, [DONE].
import { isDeepStrictEqual } from 'node:util';
import { withLastMember } from '../../../proto/json.ts';
import { answers, rims } from '../../../scripts/vectors/endorsements.ts';
import { nonceHex, PAYLOADS, rawOf, STREAMED, transcript, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { bare, evidenceOf, forge } from '../../../scripts/vectors/forge.ts';
import { AT, type World } from '../../../scripts/vectors/world.ts';
import { fromBase64 } from '../../../verify/common/bytes.ts';
import { createCollateral, type VerifyOptions, verifyAttestation, verifyEvidence } from '../../../verify/index.ts';
import { batchOf } from '../maker.ts';
import { mutateText } from './fuzz-bytes.ts';
import { mutateJson } from './fuzz-json.ts';
import type { Random } from './fuzz-random.ts';
import type { AnyTarget } from './fuzz-target.ts';
import { mutateToken, mutateTranscript } from './fuzz-targets-text.ts';

/** Everything that the caller of a full verification hands in, for the devices of this world. */
export function fullOptions(world: World): VerifyOptions {
  const ocsp = [...answers(world, world.a).values(), ...answers(world, world.b).values()];
  return {
    at: AT,
    simulatedRoot: world.issuers.root.certificate.pem,
    roots: { rim: world.rimSigner.root.certificate.pem },
    collateral: createCollateral({ rims: rims(world.rimSigner), ocsp: ocsp.map((der) => new Uint8Array(der)) }),
  };
}

/** One of its texts changed inside, as its own format is; or JSON as such. */
function mutateAttestation(text: string, random: Random): string {
  if (random.chance(0.4)) return mutateJson(text, random);
  if (random.chance(0.3)) return mutateText(text, random);
  return text.replace(/"(raw|token)":"((?:[^"\\]|\\.)*)"/g, (whole, name: string, value: string) => {
    if (random.chance(0.5)) return whole;
    try {
      const changed = mutateToken(JSON.parse(`"${value}"`) as string, random);
      return `"${name}":${JSON.stringify(changed)}`;
    } catch {
      return whole;
    }
  });
}

const mutateEvidence = (text: string, random: Random): string =>
  random.chance(0.5) ? mutateJson(text, random) : mutateText(text, random);

export async function wholeTargets(world: World): Promise<AnyTarget[]> {
  const options = fullOptions(world);
  const attestation = await forge(world);
  const nonce = nonceHex(rawOf(WHOLE));
  const list = [bare(await evidenceOf(world.a, nonce), nonce), bare(await evidenceOf(world.b, nonce), nonce)];
  const streamed = await forge(world, { parts: STREAMED });
  const { nonce: signed, batch: member } = batchOf(rawOf(WHOLE), 13, 6);
  const batched = await forge(world, { batch: { member, nonce: signed } });
  const known = new Set(list.map(({ evidence }) => Buffer.from(evidence, 'base64').toString('hex')));

  const verified = async (input: string) => {
    const { exchange, claims, attestation: same } = await verifyAttestation(input, options);
    return { exchange, batch: claims.batch, reports: same.evidence?.map(({ report }) => fromBase64(report)) };
  };
  const whole = (name: string, good: string): AnyTarget => ({
    name,
    weight: 2,
    good,
    mutate: mutateAttestation,
    run: verified,
    refusals: ['VerificationError'],
  });
  return [
    whole('attestation', JSON.stringify(attestation)),
    whole('attestation of a batch', JSON.stringify(batched)),
    whole('response', withLastMember(WHOLE.response, 'attestation', JSON.stringify(attestation))),
    {
      name: 'bare evidence',
      weight: 2,
      good: JSON.stringify(list),
      mutate: mutateEvidence,
      run: async (input: string) => {
        const { claims } = await verifyEvidence(input, options);
        const reports = (JSON.parse(input) as { evidence: string }[]).map(({ evidence }) => fromBase64(evidence));
        const all = reports.every((report) => known.has(Buffer.from(report).toString('hex')));
        return all && claims.devices.length === reports.length ? null : { reports };
      },
      refusals: ['VerificationError'],
    },
    {
      name: 'transcript',
      weight: 2,
      good: new Uint8Array(Buffer.from(transcript(PAYLOADS, streamed))),
      mutate: mutateTranscript,
      run: async (input: Uint8Array) => {
        const { exchange } = await verifyAttestation(streamed, { ...options, expected: { transcript: input } });
        return [exchange, dataOf(input)];
      },
      refusals: ['VerificationError'],
    },
  ];
}

/**
 * What a client reads, by a reading of its own: every event's data but [DONE]. A payload that differs from the backend's in
 * its attestation alone, which need not even be JSON for the rest to be what was signed, stands for the backend's.
 */
function dataOf(bytes: Uint8Array): string[] {
  const text = Buffer.from(bytes).toString('utf8').replace(/\r\n?/g, '\n');
  const events = text.split(/\n\n+/).map((event) => event.split('\n').filter((line) => /^data(:|$)/.test(line)));
  return events
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.map((line) => line.replace(/^data:? ?/, '')).join('\n'))
    .filter((payload) => payload !== '[DONE]')
    .map((payload, i) => (isButForAttestation(payload, PAYLOADS[i] ?? '') ? (PAYLOADS[i] ?? '') : payload));
}

function isButForAttestation(payload: string, signed: string): boolean {
  if (payload.startsWith(`${signed.slice(0, -1)},"attestation":`) && payload.endsWith('}')) return true;
  try {
    const { attestation: _, ...rest } = JSON.parse(payload) as Record<string, unknown>;
    return isDeepStrictEqual(rest, JSON.parse(signed));
  } catch {
    return false;
  }
}

// Cases about the attestation's own form, raw, and what the caller holds beside it.
import { withLastMember } from '../../proto/json.ts';
import { nonceHex, OTHER, PAYLOADS, rawOf, STREAMED, transcript, WHOLE } from './exchange.ts';
import { forge } from './forge.ts';
import { ALONE, type Case, fail, type Kit, pass, SELF_ASSERTED } from './kit.ts';

const carried = async ({ world }: Kit): Promise<string> =>
  withLastMember(WHOLE.response, 'attestation', JSON.stringify(await forge(world)));

async function streamed({ world }: Kit, change: (payloads: string[]) => void) {
  const attestation = await forge(world, { parts: STREAMED });
  const payloads = [...PAYLOADS];
  change(payloads);
  return { attestation, options: { expected: { transcript: transcript(payloads, attestation) } } };
}

const forgedRaw = async ({ world }: Kit, raw: string) => ({ attestation: await forge(world, { raw }) });
const spliced = (member: string): string => rawOf(WHOLE).replace(/\}$/, `,${member}}`);

export const EXCHANGE_CASES: readonly Case[] = [
  pass('form', 'attestation', ({ attestation_file }) => ({
    description: 'an attestation, parsed; everything is right',
    attestation_file,
    skipped: ALONE,
  })),
  pass('form', 'response-text', async (kit) => ({
    description: 'the text of a response that carries its attestation as last member',
    text: await carried(kit),
    skipped: SELF_ASSERTED,
  })),
  fail('form', 'not-json', 'not_json', () => ({ description: 'a text that breaks off', text: '{"raw":"{}"' })),
  fail('form', 'no-nonce', 'not_an_attestation', async ({ world }) => {
    const { nonce: _, ...attestation } = await forge(world);
    return { description: 'the member nonce is missing', attestation };
  }),
  fail('form', 'member-twice', 'not_an_attestation', async ({ world }) => {
    const attestation = await forge(world);
    const text = JSON.stringify(attestation).replace(/^\{/, `{"n\\u006fnce":"${attestation.nonce}",`);
    return { description: 'the member nonce stands twice, once written with an escape', text };
  }),
  fail('form', 'evidence-member-twice', 'not_an_attestation', async ({ world }) => {
    const text = JSON.stringify(await forge(world)).replace('"arch":', '"arch":"BLACKWELL","arch":');
    return { description: 'a member of one evidence stands twice', text };
  }),
  fail('form', 'too-large', 'too_large', async ({ world }) => ({
    description: 'a text of more characters than the caller accepts',
    text: JSON.stringify(await forge(world)),
    options: { max_characters: 1000 },
  })),

  pass('raw_hash', 'expected-nonce', ({ attestation_file }) => ({
    description:
      'the caller expects this nonce; raw has escapes, 1.0 and a 20-digit integer, which are hashed as written',
    attestation_file,
    options: { expected: { nonce: nonceHex(rawOf(WHOLE)) } },
    skipped: ALONE,
  })),
  fail('raw_hash', 'another-answer', 'raw_hash_mismatch', async ({ world }) => ({
    description: 'the answer in raw was changed after raw was signed',
    attestation: { ...(await forge(world)), raw: rawOf(OTHER) },
  })),
  fail('raw_hash', 'another-expected-nonce', 'raw_hash_mismatch', ({ attestation_file }) => ({
    description: 'the caller expects another nonce',
    attestation_file,
    options: { expected: { nonce: nonceHex(rawOf(OTHER)) } },
  })),

  pass('raw_members', 'stream', async ({ world }) => ({
    description: 'raw of a stream: with the member stream',
    attestation: await forge(world, { parts: STREAMED }),
    skipped: ALONE,
  })),
  fail('raw_members', 'unknown-member', 'raw_malformed', async (kit) => ({
    description: 'raw has a member that is not known, and was signed so',
    ...(await forgedRaw(kit, spliced('"model":"x"'))),
  })),
  fail('raw_members', 'request-twice', 'raw_malformed', async (kit) => ({
    description: 'raw has the member request twice, once written with an escape, and was signed so',
    ...(await forgedRaw(kit, spliced('"r\\u0065quest":{}'))),
  })),
  fail('raw_members', 'fractional-time', 'raw_malformed', async (kit) => ({
    description: 'the timestamp in raw is not in whole seconds, and was signed so',
    ...(await forgedRaw(kit, rawOf(WHOLE).replace(/\}$/, '.5}'))),
  })),

  pass('expected_exchange', 'request-and-response', ({ attestation_file }) => ({
    description: 'the caller holds the request and the response; white space between their tokens does not count',
    attestation_file,
    options: { expected: { request: WHOLE.request.replaceAll(',"', ' ,\n "'), response: `${WHOLE.response}\n` } },
    skipped: SELF_ASSERTED,
  })),
  pass('expected_exchange', 'transcript', async (kit) => ({
    description: 'the caller holds the event stream, byte for byte',
    ...(await streamed(kit, () => {})),
    skipped: SELF_ASSERTED,
  })),
  fail('expected_exchange', 'another-request', 'request_mismatch', ({ attestation_file }) => ({
    description: 'the caller sent another request',
    attestation_file,
    options: { expected: { request: WHOLE.request.replace('demo', 'other') } },
  })),
  fail('expected_exchange', 'request-without-escape', 'request_mismatch', ({ attestation_file }) => ({
    description: 'the request that the caller holds parses to the same value, but a letter is not written as an escape',
    attestation_file,
    options: { expected: { request: WHOLE.request.replace('\\u0068', 'h') } },
  })),
  fail('expected_exchange', 'another-response', 'response_mismatch', ({ attestation_file }) => ({
    description: 'the caller received another response',
    attestation_file,
    options: { expected: { response: OTHER.response } },
  })),
  fail('expected_exchange', 'carried-by-another-response', 'response_mismatch', async (kit) => ({
    description: 'the response that carries the attestation is not the one that was signed',
    text: (await carried(kit)).replace('"content":"Hello."', '"content":"Goodbye."'),
  })),
  fail('expected_exchange', 'members-beside-another-response', 'response_mismatch', async (kit) => {
    const members = JSON.stringify(await forge(kit.world)).slice(1, -1);
    const text = (await carried(kit))
      .replace('"content":"Hello."', '"content":"Goodbye."')
      .replace('{', `{${members},`);
    return { description: 'another response, which has the members of an attestation itself beside one', text };
  }),
  fail('expected_exchange', 'event-changed', 'stream_mismatch', async (kit) => ({
    description: 'a delta of the stream was changed',
    ...(await streamed(kit, (payloads) => payloads.splice(2, 1, (PAYLOADS[2] as string).replace('lo.', 'p!')))),
  })),
  fail('expected_exchange', 'event-dropped', 'stream_mismatch', async (kit) => ({
    description: 'an event of the stream is missing',
    ...(await streamed(kit, (payloads) => payloads.splice(1, 1))),
  })),
  fail('expected_exchange', 'events-exchanged', 'stream_mismatch', async (kit) => ({
    description: 'two events of the stream changed places',
    ...(await streamed(kit, (payloads) => payloads.splice(1, 2, PAYLOADS[2] as string, PAYLOADS[1] as string))),
  })),
  fail('expected_exchange', 'event-twice', 'stream_mismatch', async (kit) => ({
    description: 'an event of the stream stands twice',
    ...(await streamed(kit, (payloads) => payloads.splice(1, 0, PAYLOADS[1] as string))),
  })),
  fail('expected_exchange', 'event-named', 'stream_malformed', async (kit) => {
    const { attestation, options } = await streamed(kit, () => {});
    const named = options.expected.transcript.replace(`data: ${PAYLOADS[1]}`, `event: thread.x\n$&`);
    return {
      description: 'an event of the stream has a name, by which some clients pass it over',
      attestation,
      options: { expected: { transcript: named } },
    };
  }),
  fail('expected_exchange', 'byte-order-mark', 'stream_malformed', async (kit) => {
    const { attestation, options } = await streamed(kit, () => {});
    const hidden = options.expected.transcript.replace(`data: ${PAYLOADS[1]}`, `\ufeff${'data: {"choices":[]}'}\n\n$&`);
    return {
      description: 'a line begins with a byte order mark, which some clients take off and no hash covers',
      attestation,
      options: { expected: { transcript: hidden } },
    };
  }),
];

// What an event that carries a whole response is read as, and what may stand beside that response.
import { describe, expect, it } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { attestationIn } from '../../../verify/binding/input.ts';
import { appraiseAttestation } from '../../../verify/index.ts';
import { AT, attest, EXCHANGE, simulatedRoot } from '../maker.ts';

describe('an event that carries a response', () => {
  const nested = async () => {
    const response = '{"id":"resp_1","object":"response","output":[]}';
    const sha256 = '0'.repeat(64);
    const attestation = await attest({
      ...EXCHANGE,
      endpoint: '/v1/responses',
      response,
      stream: { events: 1, sha256 },
    });
    return withLastMember(response, 'attestation', JSON.stringify(attestation));
  };
  const codeOf = async (input: unknown, event = true) =>
    (await appraiseAttestation(input, { at: AT, simulatedRoot, expected: { event } })).checks.find(
      ({ status }) => status === 'fail',
    )?.code;
  const eventOf = (response: string, more = '') => `{"type":"response.completed",${more}"response":${response}}`;

  it('is read as that response, one level deep, where the caller says that it is an event', async () => {
    const response = await nested();
    const event = eventOf(response, '"sequence_number":7,');
    expect(await codeOf(event)).toBeUndefined();
    expect(await codeOf(JSON.parse(event))).toBeUndefined();
    expect(await codeOf(event, false)).toBe('event_not_expected');
    expect(await codeOf(JSON.parse(event), false)).toBe('event_not_expected');
    expect(attestationIn(event) === attestationIn(response)).toBe(true);
    for (const deeper of [eventOf(event), eventOf(eventOf('{}'))]) {
      expect(await codeOf(deeper)).toBe('event_not_expected');
      expect(await codeOf(JSON.parse(deeper))).toBe('event_not_expected');
      expect(attestationIn(deeper)).toBeNull();
    }
  });

  it.each([
    ...['"attestation":{},', '"output":[],', '"error":null,', '"\\u006futput":[],'],
    ...['"output_text":"other words",', '"results":[],', '"id":"resp_1",', '"anything":null,'],
  ])('is refused with %s beside it, which clients would read and nobody signed', async (more) => {
    const event = eventOf(await nested(), more);
    expect(await codeOf(event)).toBe('unsigned_member');
    expect(await codeOf(JSON.parse(event))).toBe('unsigned_member');
  });

  it('is refused with a member twice beside it', async () => {
    expect(await codeOf(eventOf(await nested(), '"a":{"b":1,"b":2},'))).toBe('not_an_attestation');
  });

  it('is read at once, however deep it pretends to be, or where it holds itself', async () => {
    const depth = 20_000;
    const deep = `${'{"type":"response.completed","response":'.repeat(depth)}{"attestation":{}}${'}'.repeat(depth)}`;
    const { user } = process.cpuUsage();
    expect(attestationIn(deep)).toBeNull();
    expect(await codeOf(deep)).toBe('event_not_expected');
    expect(process.cpuUsage().user - user).toBeLessThan(1_000_000);
    const ring: Record<string, unknown> = { type: 'response.completed' };
    ring.response = ring;
    expect(await codeOf(ring)).toBe('event_not_expected');
  });
});

describe('a message_delta that carries the attestation of its stream', () => {
  const whole = {
    ...{ type: 'message', text: 'Hello.', stop_reason: 'end_turn', cost: 0, container: { id: 'c' } },
    context_management: { n: 0 },
  };
  const response = JSON.stringify(whole).replace('"cost":0', '"cost":1.0').replace('"n":0', '"n":1.0');
  const stream = { events: 3, sha256: '0'.repeat(64) };

  it.each([
    ['"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}', undefined],
    ['"delta":{"stop_reason":"end_turn","stop_sequence":null,"container":{"id":"c"}}', undefined],
    ['"delta":{"stop_reason":"end_turn"},"context_management":{"n":1.0}', undefined],
    ['"delta":{"stop_reason":"end_turn"},"cost":1.0', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn","type":"message"}', 'response_mismatch'],
    ['"delta":{"stop_reason":null}', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn","container":{}}', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn","text":"o."}', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn","more":null}', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn"},"toString":null', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn"},"context_management":{"n":1.00}', 'response_mismatch'],
    ['"delta":{"stop_reason":"end_turn","stop_reason":"end_turn"}', 'response_mismatch'],
  ])('sets what the message has, where the caller says that it is an event: %s', async (members, code) => {
    const attestation = await attest({ ...EXCHANGE, endpoint: '/v1/messages', response, stream });
    const event = withLastMember(`{"type":"message_delta",${members}}`, 'attestation', JSON.stringify(attestation));
    const codeOf = async (event_: boolean) =>
      (await appraiseAttestation(event, { at: AT, simulatedRoot, expected: { event: event_ } })).checks.find(
        ({ status }) => status === 'fail',
      )?.code;
    expect(await codeOf(true)).toBe(code);
    expect(await codeOf(false)).toBe(code ?? 'event_not_expected');
  });
});

describe('an answer that is wrapped', () => {
  const whole = '{"id":"resp_1","object":"response","output":[]}';
  const codeOf = async (input: unknown, event: boolean) =>
    (await appraiseAttestation(input, { at: AT, simulatedRoot, expected: { event } })).checks.find(
      ({ status }) => status === 'fail',
    )?.code;

  it('is refused: clients show what stands around it', async () => {
    const attestation = JSON.stringify(await attest({ ...EXCHANGE, endpoint: '/v1/responses', response: whole }));
    const answer = withLastMember(whole, 'attestation', attestation);
    expect(await codeOf(answer, false)).toBeUndefined();
    const wrapped = `{"type":"response.completed","response":${answer}`;
    const others = ['"output_text":"other words"', '"results":[]', '"choices":[]', '"x":null', '"object":"response"'];
    for (const other of others)
      for (const [input, event] of [
        [`${wrapped},${other}}`, false],
        [`${wrapped},${other}}`, true],
        [`${attestation.slice(0, -1)},${other}}`, false],
        [`${attestation.slice(0, -1)},${other}}`, true],
      ] as const) {
        const code = input.startsWith(wrapped) && !event ? 'event_not_expected' : 'unsigned_member';
        expect([input.slice(-40), await codeOf(input, event)]).toEqual([input.slice(-40), code]);
        expect(await codeOf(JSON.parse(input), event)).toBe(code);
      }
  });
});

describe('the endpoint that a response says it is of', () => {
  it('counts also where it is written in escapes', async () => {
    const response = '{"object":"chat.c\\u006fmpletion","choices":[]}';
    const { checks } = await appraiseAttestation(await attest({ ...EXCHANGE, endpoint: '/v1/completions', response }), {
      at: AT,
      simulatedRoot,
    });
    expect(checks.find(({ status }) => status === 'fail')?.code).toBe('endpoint_mismatch');
  });
});

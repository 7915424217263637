// The chain by itself: exchanges are given as if their proofs were checked.
import { describe, expect, it } from 'vitest';
import { Chain, type Link } from '../../../auditor/transcript/chain.ts';
import { conversationOf } from '../../../auditor/transcript/items.ts';

type Json = Record<string, unknown>;
const PATHS = { chat: '/v1/chat/completions', responses: '/v1/responses', messages: '/v1/messages' } as const;

/** Adds exchanges to one chain. */
function chainOf(path: keyof typeof PATHS) {
  const chain = new Chain();
  let turn = 0;
  const add = (request: Json, response: Json): Link & { codes: string[] } => {
    const conversation = conversationOf(PATHS[path], JSON.stringify(request), JSON.stringify(response));
    if (conversation === null) throw new Error('no conversation');
    const link = chain.add(++turn, conversation);
    return { ...link, codes: link.findings.map(({ code }) => code) };
  };
  return { chain, add };
}

const user = (content: unknown) => ({ role: 'user', content });
const call = (id: string, args = '{}', name = 'f') => ({ id, type: 'function', function: { name, arguments: args } });
const assistant = (content: string | null, ...tool_calls: Json[]) => ({ role: 'assistant', content, tool_calls });
const tool = (tool_call_id: string, content: unknown) => ({ role: 'tool', tool_call_id, content });
const said = (message: Json, model = 'm') => ({ id: 'x', model, choices: [{ index: 0, message }] });

describe('a chain of chat completions', () => {
  it('joins each turn to the one it continues, whatever the form in which a client copies it', () => {
    const { add } = chainOf('chat');
    const first = add({ messages: [user('Hi')] }, said(assistant('Wait.', call('1', '{"b":[1.0, 2],"a":"é"}'))));
    expect([first.run, first.parent, first.codes]).toEqual([1, null, []]);
    const copied = { role: 'assistant', content: [{ type: 'text', text: 'Wait.' }], refusal: null, name: 'x' };
    const again = { ...copied, tool_calls: [call('1', '{ "a": "\\u00e9", "b": [1, 2.0] }')] };
    const next = add(
      {
        messages: [
          user([{ type: 'text', text: 'Hi', cache_control: {} }]),
          again,
          tool('1', [{ type: 'text', text: 'ok' }]),
        ],
      },
      said(assistant('Done.')),
    );
    expect([next.parent, next.codes, next.fresh.map(({ kind }) => kind)]).toEqual([1, [], ['result']]);
  });

  it.each([
    ['a string for a number', '{"n":"1"}'],
    ['another digit of a long number', '{"n":12345678901234567891}'],
    ['one member more', '{"n":12345678901234567890,"m":0}'],
    ['no JSON', '{"n":12345678901234567890'],
  ])('takes no arguments for the same that have %s', (_name, args) => {
    const { add } = chainOf('chat');
    add({ messages: [user('Hi')] }, said(assistant(null, call('1', '{"n":12345678901234567890}'))));
    const next = add(
      { messages: [user('Hi'), assistant(null, call('1', args)), tool('1', 'ok')] },
      said(assistant('.')),
    );
    expect(next.codes).toEqual(['said_changed']);
  });

  it.each([
    ['a member that stands twice', '{"p":"rm","p":"ls"}', '{"p":"ls"}'],
    ['another status', '{"status":"draft"}', '{"status":"sent"}'],
    ['other annotations inside', '{"a":{"annotations":["x"]}}', '{"a":{}}'],
    ['another number beyond all doubles', '{"n":1e400}', '{"n":2e500}'],
    ['another half of a pair', '"\\ud800', '"\\udc00'],
  ])('takes no arguments for the same that have %s', (_name, before, now) => {
    const { add } = chainOf('chat');
    const history = (args: string) => [
      user('Hi'),
      assistant(null, call('1', JSON.parse(`"${args.replace(/"/g, '\\"')}"`))),
    ];
    add({ messages: [user('Hi')] }, said(history(before)[1] as Json));
    const next = (args: string) => add({ messages: [...history(args), tool('1', 'ok')] }, said(assistant('.'))).codes;
    expect([next(now), next(before)]).toEqual([['said_changed'], ['branch']]);
  });

  it('takes no text for what is written in other parts, and leaves no part of a history out', () => {
    const { add } = chainOf('chat');
    const image = { role: 'assistant', content: [{ type: 'image', url: 'a' }] };
    add({ messages: [user('Hi')] }, said(image));
    const next = (message: unknown, ...more: unknown[]) =>
      add({ messages: [user('Hi'), message, user('And?'), ...more] }, said(assistant('B')));
    expect(next({ ...image, content: '\0[{"type":"image","url":"a"}]' }).codes).toEqual(['said_changed']);
    expect(next(image).codes).toEqual(['branch']);
    expect(next(image, 'Obey.').fresh).toHaveLength(2);
  });

  it('tells of reasoning that is of another run', () => {
    const { add } = chainOf('chat');
    const thought = (content: string, reasoning_content: string) => ({ ...assistant(content), reasoning_content });
    add({ messages: [user('Hi')] }, said(thought('A', 'Hm.')));
    add({ messages: [user('Ho')] }, said(thought('B', 'So.')));
    const next = (reasoning: string) =>
      add({ messages: [user('Ho'), thought('B', reasoning), user('And?')] }, said(assistant('C'))).codes;
    expect([next('Hm.'), next('So.')]).toEqual([['aside_changed'], ['branch']]);
  });

  it('tells of branches, other models, parallel calls, receipts and calls that stay open', () => {
    const { chain, add } = chainOf('chat');
    const asked = [user('Hi'), assistant(null, call('1'), call('2'))];
    add({ messages: asked.slice(0, 1) }, said(asked[1] as Json));
    const receipt = JSON.stringify({ value: 1, receipt: { sha256: 'a'.repeat(64) } });
    const both = [...asked, tool('2', 'ok'), tool('1', receipt)];
    expect(add({ messages: both }, said(assistant('One.'))).codes).toEqual(['receipt', 'parallel_calls']);
    const branch = add({ messages: both }, said(assistant(null, call('3')), 'other'));
    expect(branch.codes).toEqual(['receipt', 'parallel_calls', 'branch', 'model_changed']);
    expect([branch.run, branch.parent]).toEqual([1, 1]);
    expect(chain.open()).toMatchObject([
      { code: 'calls_open', text: 'run 1 ends in turn 3 with 1 call that nothing answers' },
    ]);
  });

  it('keeps runs apart whose calls have the same ids, and one run whose model uses an id again', () => {
    const { chain, add } = chainOf('chat');
    const history = (name: string) => [user(name), assistant(null, call('0')), tool('0', name)];
    for (const name of ['a', 'b']) add({ messages: history(name).slice(0, 1) }, said(assistant(null, call('0'))));
    for (const name of ['a', 'b'])
      expect(add({ messages: history(name) }, said(assistant(null, call('0', '{"x":1}')))).codes).toEqual([]);
    const more = [...history('a'), assistant(null, call('0', '{"x":1}')), tool('0', 'more')];
    expect(add({ messages: more }, said(assistant('Done.')))).toMatchObject({ run: 1, parent: 3, codes: [] });
    expect(chain.runs).toBe(2);
  });

  it('continues any of several choices', () => {
    const { add } = chainOf('chat');
    const choices = ['A', 'B'].map((content, index) => ({ index, message: { role: 'assistant', content } }));
    add({ messages: [user('Hi')], n: 2 }, { id: 'x', model: 'm', choices });
    expect(add({ messages: [user('Hi'), assistant('B'), user('Go on')] }, said(assistant('C'))).codes).toEqual([]);
  });

  it('says what a history begins with that the file does not have: words may be examples, calls may not', () => {
    const { add } = chainOf('chat');
    const examples = [user('2+2'), assistant('4'), user('3+3')];
    expect(add({ messages: examples }, said(assistant('6'))).codes).toEqual(['answers_before']);
    const before = [user('Hi'), assistant(null, call('9')), tool('9', 'ok')];
    expect(add({ messages: before }, said(assistant('.'))).codes).toEqual(['calls_before']);
    expect(add({ messages: [user('Ho'), tool('8', 'ok')] }, said(assistant('.'))).codes).toEqual(['result_unasked']);
  });

  it('takes reasoning that is told again or left out, and names such that nobody said', () => {
    const { add } = chainOf('chat');
    const thought = { ...assistant('A'), reasoning_content: 'Hm.' };
    add({ messages: [user('Hi')] }, said(thought));
    const next = (message: Json) => add({ messages: [user('Hi'), message, user('And?')] }, said(assistant('B'))).codes;
    expect([next(thought), next(assistant('A'))]).toEqual([[], ['branch']]);
    expect(next({ ...thought, reasoning_content: 'Obey.' })).toEqual(['aside_changed', 'branch']);
  });

  it('lets a later turn come before the one it continues, and names it', () => {
    const { add } = chainOf('chat');
    const asked = [user('Hi'), assistant(null, call('1'))];
    expect(add({ messages: [...asked, tool('1', 'ok')] }, said(assistant('.'))).codes).toEqual(['calls_before']);
    expect(add({ messages: asked.slice(0, 1) }, said(asked[1] as Json)).codes).toEqual(['out_of_order']);
  });
});

describe('a chain of responses', () => {
  const f = (call_id: string) => ({ type: 'function_call', id: `fc_${call_id}`, call_id, name: 'f', arguments: '{}' });
  const output = (call_id: string, text: string) => ({ type: 'function_call_output', call_id, output: text });
  const response = (id: string, ...items: Json[]) => ({ id, model: 'm', output: items });

  it('follows previous_response_id, says that the state is hidden, and matches results', () => {
    const { chain, add } = chainOf('responses');
    add({ input: 'Hi' }, response('r1', f('1'), f('2')));
    const next = add(
      { previous_response_id: 'r1', input: [output('1', 'a'), output('2', 'b')] },
      response('r2', f('3')),
    );
    expect([next.parent, next.codes]).toEqual([1, ['state_hidden', 'parallel_calls']]);
    const lost = add({ previous_response_id: 'r2', input: [output('4', 'x')] }, response('r3'));
    expect(lost.codes).toEqual(['state_hidden', 'result_unasked', 'call_unanswered']);
    expect(add({ previous_response_id: 'r9', input: 'Hi' }, response('r4')).codes).toEqual(['parent_unknown']);
    expect(add({ input: 'Ho' }, response('r9')).codes).toEqual(['out_of_order']);
    expect(chain.runs).toBe(3);
  });

  it('follows a conversation, and references to items', () => {
    const { add } = chainOf('responses');
    expect(add({ conversation: 'c1', input: 'Hi' }, response('r1', f('1'))).codes).toEqual(['parent_unknown']);
    const next = add({ conversation: { id: 'c1' }, input: [output('1', 'a')] }, response('r2', f('2')));
    expect([next.parent, next.codes]).toEqual([1, ['state_hidden']]);
    add({ input: 'Hey' }, response('r3', f('5')));
    const input = [user('Hey'), { type: 'item_reference', id: 'fc_5' }, output('5', 'ok')];
    expect(add({ input }, response('r4'))).toMatchObject({ parent: 3, codes: ['state_hidden'] });
  });

  it('takes reasoning and what the service ran by itself, which a client may leave out', () => {
    const { add } = chainOf('responses');
    const reasoning = { type: 'reasoning', id: 'rs', summary: [{ type: 'summary_text', text: 'Hm.' }] };
    const search = { type: 'web_search_call', id: 'ws', status: 'completed', action: { query: 'x' } };
    add({ input: 'Hi', instructions: 'Be kind.' }, response('r1', reasoning, search, f('1')));
    const whole = add({ input: [user('Hi'), reasoning, search, f('1'), output('1', 'a')] }, response('r2'));
    expect(whole.codes).toEqual(['instructions_changed']);
    expect(add({ input: [user('Hi'), f('1'), output('1', 'a')] }, response('r3')).codes).toEqual(['branch']);
  });
});

describe('a chain of messages', () => {
  it('compares inputs as values, and lets cache_control move', () => {
    const { add } = chainOf('messages');
    const use = { type: 'tool_use', id: 't1', name: 'f', input: { b: 1, a: [true] } };
    add({ system: 'S', messages: [user('Hi')] }, { id: 'm1', model: 'm', role: 'assistant', content: [use] });
    const result = { type: 'tool_result', tool_use_id: 't1', content: 'ok', cache_control: { type: 'ephemeral' } };
    const copied = { ...use, input: { a: [true], b: 1 }, cache_control: { type: 'ephemeral' } };
    const messages = [
      user('Hi'),
      { role: 'assistant', content: [copied] },
      user([result, { type: 'text', text: 'Go.' }]),
    ];
    const next = add({ system: [{ type: 'text', text: 'S' }], messages }, { id: 'm2', role: 'assistant', content: [] });
    expect([next.parent, next.codes, next.fresh.map(({ kind }) => kind)]).toEqual([1, [], ['result', 'user']]);
    const failed = { ...result, is_error: true };
    const changed = [...messages.slice(0, 2), user([failed, { type: 'text', text: 'Go.' }]), user('More')];
    expect(add({ system: 'S', messages: changed }, { role: 'assistant', content: [] }).codes).toContain('branch');
  });
});

describe('a conversation', () => {
  it('is none of another endpoint, and is not compared where it is nested too deeply', () => {
    expect(conversationOf('/v1/embeddings', '{}', '{}')).toBeNull();
    const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`;
    const request = `{"messages":[{"role":"user","content":[{"type":"x","x":${deep}}]}]}`;
    expect(() => conversationOf(PATHS.chat, request, '{}')).toThrow(RangeError);
    expect(conversationOf(PATHS.chat, '{"messages":7}', '{"choices":{}}')).toMatchObject({
      items: [],
      responses: [[]],
    });
  });
});

// The history that an agent sends, in the three forms, for tests that forge it.

type Json = Record<string, unknown>;

/** What stands in a history, in its order; each can be changed in place. */
export interface Place {
  readonly kind: 'call' | 'result' | 'answer';
  readonly id: string;
  set(value: string): void;
  rename(id: string): void;
  drop(): void;
}

export interface History {
  readonly body: Json;
  places(kind: Place['kind']): Place[];
  /** At the end. */
  call(id: string, name: string, args: string): void;
  result(id: string, text: string): void;
  answer(text: string): void;
  /** @param at its place among messages */
  message(text: string, at?: number): void;
  instructions(text: string): void;
  text(): string;
}

const list = (value: unknown): Json[] => value as Json[];
const without = (items: Json[], one: Json) => void items.splice(items.indexOf(one), 1);

export function historyOf(text: string): History {
  const body = JSON.parse(text) as Json;
  if ('input' in body) return ofResponses(body);
  return 'max_tokens' in body ? ofMessages(body) : ofChat(body);
}

function ofChat(body: Json): History {
  const messages = list(body.messages);
  const all = (): Place[] =>
    messages.flatMap((message): Place[] => {
      const drop = () => without(messages, message);
      if (message.role === 'tool')
        return [
          {
            kind: 'result',
            id: String(message.tool_call_id),
            set: (value) => void Object.assign(message, { content: value }),
            rename: (id) => void Object.assign(message, { tool_call_id: id }),
            drop,
          },
        ];
      if (message.role !== 'assistant') return [];
      const calls = list(message.tool_calls ?? []).map(
        (call): Place => ({
          kind: 'call',
          id: String(call.id),
          set: (value) => void Object.assign(call.function as Json, { arguments: value }),
          rename: (id) => void Object.assign(call, { id: id }),
          drop,
        }),
      );
      const has = message.content != null && message.content !== '';
      const answer: Place = {
        kind: 'answer',
        id: '',
        set: (value) => void Object.assign(message, { content: value }),
        rename() {},
        drop,
      };
      return has ? [answer, ...calls] : calls;
    });
  return {
    body,
    places: (kind) => all().filter((one) => one.kind === kind),
    call: (id, name, args) =>
      void messages.push({
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name, arguments: args } }],
      }),
    result: (id, content) => void messages.push({ role: 'tool', tool_call_id: id, content }),
    answer: (content) => void messages.push({ role: 'assistant', content }),
    message: (content, at = messages.length) => void messages.splice(at, 0, { role: 'user', content }),
    instructions: (content) => {
      if (/system|developer/.test(String(messages[0]?.role))) messages.shift();
      messages.unshift({ role: 'system', content });
    },
    text: () => JSON.stringify(body),
  };
}

function ofResponses(body: Json): History {
  const input = list(body.input);
  const all = (): Place[] =>
    input.flatMap((item): Place[] => {
      const kind = item.type === 'function_call' ? 'call' : item.type === 'function_call_output' ? 'result' : 'answer';
      if (kind === 'answer' && item.role !== 'assistant') return [];
      const member = { call: 'arguments', result: 'output', answer: 'content' }[kind];
      return [
        {
          kind,
          id: String(item.call_id ?? ''),
          set: (value) =>
            void Object.assign(item, { [member]: kind === 'answer' ? [{ type: 'output_text', text: value }] : value }),
          rename: (id) => void Object.assign(item, { call_id: id }),
          drop: () => without(input, item),
        },
      ];
    });
  return {
    body,
    places: (kind) => all().filter((one) => one.kind === kind),
    call: (call_id, name, args) => void input.push({ type: 'function_call', call_id, name, arguments: args }),
    result: (call_id, output) => void input.push({ type: 'function_call_output', call_id, output }),
    answer: (text) => void input.push({ type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] }),
    message: (content, at = input.length) => void input.splice(at, 0, { role: 'user', content }),
    instructions: (text) => void Object.assign(body, { instructions: text }),
    text: () => JSON.stringify(body),
  };
}

function ofMessages(body: Json): History {
  const messages = list(body.messages);
  const blocks = (message: Json): Json[] => {
    if (typeof message.content === 'string') message.content = [{ type: 'text', text: message.content }];
    return list(message.content);
  };
  const all = (): Place[] =>
    messages.flatMap((message) =>
      blocks(message).flatMap((block): Place[] => {
        const { type } = block;
        const kind = type === 'tool_use' ? 'call' : type === 'tool_result' ? 'result' : 'answer';
        if (kind === 'answer' && message.role !== 'assistant') return [];
        const member = { call: 'input', result: 'content', answer: 'text' }[kind];
        const name = kind === 'call' ? 'id' : 'tool_use_id';
        return [
          {
            kind,
            id: String(block[name] ?? ''),
            set: (value) => void Object.assign(block, { [member]: kind === 'call' ? JSON.parse(value) : value }),
            rename: (id) => void Object.assign(block, { [name]: id }),
            drop: () => without(blocks(message), block),
          },
        ];
      }),
    );
  return {
    body,
    places: (kind) => all().filter((one) => one.kind === kind),
    call: (id, name, args) =>
      void messages.push({ role: 'assistant', content: [{ type: 'tool_use', id, name, input: JSON.parse(args) }] }),
    result(id, content) {
      const block = { type: 'tool_result', tool_use_id: id, content };
      const last = messages.at(-1) as Json;
      if (last.role === 'user') blocks(last).push(block);
      else messages.push({ role: 'user', content: [block] });
    },
    answer: (text) => void messages.push({ role: 'assistant', content: [{ type: 'text', text }] }),
    message: (content, at = messages.length) => void messages.splice(at, 0, { role: 'user', content }),
    instructions: (text) => void Object.assign(body, { system: text }),
    text: () => JSON.stringify(body),
  };
}

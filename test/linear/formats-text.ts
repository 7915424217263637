// Texts: JSON in the shapes that are read, requests, tokens, attestations.
import { nonceHex, rawOf, WHOLE } from '../../scripts/vectors/exchange.ts';
import { forge } from '../../scripts/vectors/forge.ts';
import type { World } from '../../scripts/vectors/world.ts';
import { each, FEW, type Format, nested, pairs, repeat, shaped, VALUES, within, words } from './grammar.ts';

const responses: Format = {
  name: 'nested responses',
  most: 32_768,
  encoding: 'utf8',
  productions: {
    'a response in a response': nested('{"type":"response.completed","response":', '{"attestation":{}}', '}'),
    'an event in an attestation': nested('{"attestation":{"type":"response.completed","response":', '{}', '}}'),
    'many responses': within('{', repeat('"response":{},'), '"type":"response.completed"}'),
    'attestations beside': within(
      '{',
      each((i) => `"r${i}":{"attestation":{}},`),
      '"attestation":{}}',
    ),
    ...shaped({ 'beside an attestation': (text) => `{"x":${text},"attestation":{}}` }, VALUES),
  },
};

const json: Format = {
  name: 'JSON',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        alone: (text) => text,
        'in a member': (text) => `{"a":${text}}`,
      },
      VALUES,
    ),
    ...shaped({ 'in a list': (text) => `[${text}]`, 'in a text': (text) => JSON.stringify(text) }, FEW),
    ...words(
      [
        '[',
        '{"a":',
        '"',
        '\\',
        '\\"',
        '}',
        ']',
        ',',
        ':',
        ' ',
        '1',
        '{',
        '{}',
        '"a":1,',
        '"":',
        '-0,',
        '1e5,',
        '.0',
        'null,',
        '\uFEFF',
        '0.00000',
      ],
      [
        ['', ''],
        ['{"a":', '}'],
        ['{', '}'],
      ],
    ),
    ...pairs(['"', '\\', ' ', '[', '}', '"a":1,'], ['{"a":', '}']),
    'space before': within('', repeat(' '), '{}'),
    'space behind': within('{}', repeat(' '), ''),
    'braces behind': within('{"a":1}', repeat('}'), ''),
  },
};

const MESSAGE = '{"role":"user","content":"x"}';
const requests: Format = {
  name: 'requests',
  // Below 10,000 messages, and below as long a text in their place.
  most: 8_192,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        'a message': (text) => `{"model":"m","messages":[{"role":"user","content":${text}}],"tee":true}`,
        'before tee': (text) => `{"model":"m","messages":[${MESSAGE}],"x":${text},"tee":true}`,
      },
      VALUES,
    ),
    ...shaped(
      {
        'behind tee': (text) => `{"tee":true,"model":"m","messages":[${MESSAGE}],"x":${text}}`,
        prompt: (text) => `{"model":"m","prompt":${text},"stream":true,"tee":false}`,
        messages: (text) => `{"model":"m","messages":${text}}`,
      },
      FEW,
    ),
    'many messages': within('{"model":"m","messages":[', repeat(`${MESSAGE},`), `${MESSAGE}],"tee":true}`),
    'many messages without a role': within('{"model":"m","messages":[', repeat('{},'), '{}]}'),
    'many prompts of tokens': within('{"prompt":[', repeat('[1,2],'), '[1]],"tee":true}'),
    'many prompts of which none is right': within('{"prompt":[', repeat('[1,"x"],'), '[1]]}'),
    'tee, again and again': within('{"messages":[{"role":"u"}],', repeat('"tee":true,'), '"tee":true}'),
    'model, again and again': within('{"messages":[{"role":"u"}],', repeat('"model":"m",'), '"tee":true}'),
    'many models': within(
      '{"data":[',
      each((i) => `{"id":"m${i}"},`),
      '{"id":"m"}]}',
    ),
    'many models that are none': within('{"data":[', repeat('{},'), '{"id":"m"}]}'),
    'an error of many details': within('{"detail":[', repeat('{"loc":["body","x"],"msg":"x"},'), '{}]}'),
    'an error of a deep place': within('{"detail":[{"loc":[', repeat('"x",'), '"x"]}]}'),
  },
};

const base64Url = (text: string) => Buffer.from(text).toString('base64url');
const jwt = (payload: string, header = '{"alg":"none"}') => `${base64Url(header)}.${base64Url(payload)}.`;
const NONCE = '0'.repeat(64);
const claimed = (text: string) => `{"eat_nonce":"${NONCE}","x":${text}}`;

const tokens: Format = {
  name: 'tokens',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        claims: (text) => jwt(claimed(text)),
      },
      VALUES,
    ),
    ...shaped(
      {
        header: (text) => jwt(claimed('1'), `{"alg":"none","x":${text}}`),
        submodule: (text) => `[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed(text), '{"alg":"HS256"}')}"}]`,
        'beside the claims': (text) =>
          `{"detached_eat":[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed('1'))}"}],"x":${text}}`,
        'printed claims': (text) =>
          `{"detached_eat":[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed(text))}"}],"claims":[${claimed(text)}]}`,
        outer: (text) => text,
      },
      FEW,
    ),
    ...words(
      ['.', 'A', 'e30.', '-', '_', '=', ' ', '[', '["JWT",', '"'],
      [
        ['', ''],
        ['[["JWT","', '"],{}]'],
      ],
    ),
    'submodules that are named': (n) =>
      `[["JWT","${jwt(
        `{"eat_nonce":"${NONCE}","submods":${within(
          '{',
          each((i) => `"GPU-${i}":["DIGEST",["SHA256","${NONCE}"]],`),
          '"Z":1}',
        )(n)}}`,
      )}"],{"GPU-0":"${jwt(claimed('1'))}"}]`,
    'many submodules': within(
      `[["JWT","${jwt(claimed('1'))}"],{`,
      each((i) => `"GPU-${i}":"${jwt(claimed('1'))}",`),
      '"Z":"x.y.z"}]',
    ),
  },
};

/** Attestations that are right, of large requests and answers; and some that are not. */
function attestations(world: World): Format {
  const of = (request: string, response: string) => forge(world, { parts: { ...WHOLE, request, response } });
  const productions: Record<string, Format['productions'][string]> = {};
  for (const [name, value] of Object.entries(VALUES)) {
    productions[`request: ${name}`] = async (n) => JSON.stringify(await of(`{"a":${value(n)}}`, WHOLE.response));
    productions[`response: ${name}`] = async (n) => {
      const response = `{"a":${value(n)}}`;
      return response.replace(/\}$/, `,"attestation":${JSON.stringify(await of(WHOLE.request, response))}}`);
    };
  }
  for (const [name, value] of Object.entries(FEW)) {
    productions[`raw: ${name}`] = (n) => JSON.stringify({ raw: value(n), nonce: nonceHex(value(n)), token: 't' });
    productions[`evidence: ${name}`] = (n) =>
      `{"raw":${JSON.stringify(rawOf(WHOLE))},"nonce":"${nonceHex(rawOf(WHOLE))}","token":"t","evidence":${value(n)}}`;
    productions[`members: ${name}`] = (n) =>
      `{"token":${value(n)},"evidence":[{"arch":"HOPPER","report":"AAAA","certificate_chain":"AAAA"}]}`;
  }
  const LONG = 'A'.repeat(52);
  const device = (report: string, chain: string) =>
    `{"arch":"HOPPER","report":"${report}","certificate_chain":"${chain}"}`;
  return {
    name: 'attestations',
    most: 8_192,
    encoding: 'utf8',
    productions: {
      ...productions,
      ...shaped(
        {
          report: (text) => `[${device(text, 'AAAA')}]`,
          chain: (text) => `[${device('AAAA', text)}]`,
          members: (text) => `{"token":"tt","evidence":[${device(text, text)}]}`,
        },
        { letters: repeat('A'), 'line ends': repeat('AAAA\\n'), padding: repeat('='), escapes: repeat('\\\\') },
      ),
      'many devices': within('[', repeat(`${device(LONG, LONG)},`), `${device(LONG, LONG)}]`),
      'devices as members': within(
        '{"token":"tt","evidence":[',
        repeat(`${device(LONG, LONG)},`),
        `${device(LONG, LONG)}]}`,
      ),
      'attestation, again and again': within('{', repeat('"attestation":{},'), '"attestation":{}}'),
    },
  };
}

export const textFormats = (world: World): Format[] => [responses, json, requests, tokens, attestations(world)];

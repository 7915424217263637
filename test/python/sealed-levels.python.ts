// The sessions that the Python package seals to: at which level, with whose challenge, and to which of the gateway's keys. Devices and
// processors are made here, under roots that the client takes for NVIDIA's and AMD's.
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { pem } from '../../demo/twin/authority.ts';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { joined } from '../../sealed/byte-source.ts';
import {
  isFor,
  makeKeys,
  nonceBytes,
  type OpeningKey,
  openRequest,
  RESPONSE_MEDIA_TYPE,
  ResponseSealer,
  readRequestHeader,
  responseKeys,
  writeContent,
  writeEnd,
  writeResponseHead,
} from '../../sealed/index.ts';
import { all } from '../sealed/chunks.ts';
import { secrets } from '../sealed/suites.ts';
import { LAUNCH_SHA256 } from '../support/launch-file.ts';
import { usePython } from '../support/line-process.ts';
import { AT, simulatedRoot } from '../verify/maker.ts';
import { amd, makeSession, processorRoots } from '../verify/session-maker.ts';
import { listOf, MEASURED, ownOf } from './guests.ts';
import { PACKAGE, python, SKIPPED } from './package.ts';

const DRIVER = fileURLToPath(new URL('sealed_levels.py', import.meta.url));

interface Outcome {
  readonly status: number;
  readonly body: { readonly ok?: boolean; readonly error?: { readonly code: string; readonly type: string } };
  /** The level of each session that was sealed to. */
  readonly sessions: readonly string[];
  /** Code, message and cause of each refusal. */
  readonly errors: readonly (readonly [code: string, message: string, cause: string])[];
}

describe.skipIf(python === null)(`sessions that the Python package seals to${SKIPPED}`, () => {
  const client = usePython(python, [DRIVER], { PYTHONPATH: `${PACKAGE}src` });
  let url: string;
  /** Members of the statement in place of the right ones. */
  let statement: Record<string, unknown> = {};
  let opened: string[] = [];
  const server = createServer((request, response) => void serve(request, response).catch(() => response.destroy()));
  let made: Awaited<ReturnType<typeof makeKeys>>;

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const target = new URL(request.url ?? '', 'http://gateway');
    if (target.pathname === '/v1/attestation/session') {
      const challenge = target.searchParams.get('challenge');
      const hpke = Buffer.from(made.document).toString('base64');
      const session = await makeSession({ statement: { challenge, hpke, launch: LAUNCH_SHA256, ...statement } });
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ ...session.cpu, gpu: session.gpu }));
      return;
    }
    const header = await readRequestHeader(request);
    const key = made.keys.find((one) => isFor(header, one)) as OpeningKey;
    const { chunks, secret } = await openRequest(header, key);
    opened.push(Buffer.from(await all(chunks)).toString('latin1'));
    const keys = await responseKeys(secret, randomBytes(nonceBytes(secret)));
    const fields = [['content-type', 'application/json']] as const;
    const message = joined([
      writeResponseHead({ status: 200, fields }),
      writeContent(Buffer.from('{"ok":true}')),
      writeEnd(),
    ]);
    response.writeHead(200, { 'content-type': RESPONSE_MEDIA_TYPE });
    response.end(joined(new ResponseSealer(keys, encryptWith(keys.key)).seal(message, true)));
  }

  beforeAll(async () => {
    made = await makeKeys(4, secrets());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => server.close());
  beforeEach(() => {
    statement = {};
    opened = [];
  });

  const ROOTS = { device: simulatedRoot, amd: pem(amd.ark) };
  async function reference() {
    const [own] = ownOf((await makeSession()).cpu as Record<string, string>);
    return listOf([{ ...own, ...MEASURED }], LAUNCH_SHA256);
  }
  const ask = (given: { level: string | null; roots?: object; simulated_root?: string; reference?: object | null }) =>
    client.ask<Outcome>({
      ...{ url, at: AT.toISOString().replace('Z', '+00:00') },
      ...{ roots: ROOTS, simulated_root: null, reference: null, ...given },
    });

  it('are those of a measured machine by default', async () => {
    const outcome = await ask({ level: null, reference: await reference() });
    expect(outcome).toEqual({ status: 200, body: { ok: true }, sessions: ['measured'], errors: [] });
    expect(opened[0]).toContain('canary');
  });

  it.each([
    ['a processor that was compared with nothing', 'gpu+cpu', {}],
    ['a simulation', 'none', { roots: { device: null, amd: null }, simulated_root: simulatedRoot + processorRoots }],
  ] as const)('are those of %s only where the caller says so', async (_what, level, given) => {
    for (const asked of [null, 'measured']) {
      const { status, body, errors, sessions } = await ask({ level: asked, ...given });
      expect({ status, type: body.error?.type, code: body.error?.code, sessions }).toEqual({
        status: 422,
        type: 'sealing_refused',
        code: 'level_too_low',
        sessions: [],
      });
      expect(errors[0]?.[1]).toContain(`is of level ${level}`);
    }
    expect(opened).toEqual([]);
    expect(await ask({ level, ...given })).toMatchObject({ status: 200, sessions: [level], errors: [] });
  });

  it.each([
    ['for another challenge', { challenge: 'ab'.repeat(32) }, 'cpu_binding_mismatch'],
    ['for no challenge', { challenge: null }, 'cpu_binding_mismatch'],
    ['of another launch file', { launch: 'cd'.repeat(32) }, 'software_mismatch'],
    ['that has ended', { not_before: 1_700_000_000, not_after: 1_700_003_600 }, 'session_expired'],
    ['without a key', { hpke: null }, 'session_without_key'],
    ['with a key that is none', { hpke: 'AAAA' }, 'session_without_key'],
    ['with keys of other algorithms', { hpke: 'AAcFd3cBAgME' }, 'sealed_unsupported'],
  ])('are none %s', async (_what, members, code) => {
    statement = members;
    const { status, body, errors } = await ask({ level: null, reference: await reference() });
    expect({ status, code: body.error?.code, told: errors[0]?.[0] }).toEqual({ status: 422, code, told: code });
    expect(opened).toEqual([]);
  });

  it('are none of a device or processor under another root', async () => {
    const { status, errors } = await ask({ level: 'none', roots: { device: null, amd: null } });
    expect(status).toBe(422);
    expect(errors[0]?.[2]).toBe('VerificationError');
    expect(opened).toEqual([]);
  });
});

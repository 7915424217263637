// Azure's evidence, collected by tpm2-tools from a software TPM that is set up as Azure's paravisor does, over a processor of our own.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createHash, createPublicKey } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { pem } from '../../demo/twin/authority.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport } from '../../demo/twin/snp.ts';
import { makeCollateral, makeIntel, makePck, makeQuote } from '../../demo/twin/tdx.ts';
import { AttesterError } from '../../sidecar/common/attester.ts';
import { createAmdEndorsements } from '../../sidecar/cpu/amd.ts';
import { createAzureCollector } from '../../sidecar/cpu/azure.ts';
import { appraiseCpu } from '../../verify/cpu.ts';
import { never } from '../support/attest.ts';
import { debianProgram, MissingPart } from '../support/debian.ts';
import { freePort, temporaryFolder } from '../support/harness.ts';

type AzureOptions = Parameters<typeof createAzureCollector>[0];

function missing(): string | null {
  try {
    for (const [program, of] of [
      ['swtpm', 'swtpm'],
      ['tpm2_quote', 'tpm2-tools'],
    ] as const)
      debianProgram(program, of);
    return null;
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    return error.message;
  }
}
const lacks = missing();
if (lacks !== null) console.warn(`SKIPPED: Azure's collector over a software TPM: this machine lacks ${lacks}`);

const AT = new Date('2026-06-01T00:00:00Z');
const D = Buffer.alloc(32, 0xd7);
const REPORT_DATA = Buffer.concat([D, Buffer.alloc(32)]);
const amdRoot = makeAmd('Genoa');
const leaf = makeLeaf(amdRoot);
const intelRoot = makeIntel();
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};

/** The first of two neighbours: tpm2-tools take the second for the TPM's control channel. */
async function twoFreePorts(): Promise<number> {
  for (let tries = 0; tries < 20; tries++) {
    const port = await freePort();
    const next = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      next.once('error', () => resolve(false)).listen(port + 1, '127.0.0.1', () => resolve(true));
    });
    await new Promise((resolve) => next.close(resolve));
    if (isFree) return port;
  }
  throw new Error('no two free ports beside each other');
}

describe.skipIf(lacks !== null)("Azure's evidence from a software TPM", () => {
  const folder = temporaryFolder();
  let tpm: ChildProcess;
  let environment: Record<string, string>;
  let service: Server;
  let imds_url: string;
  let answer: RequestListener;
  let asked: string[];

  const tool = (name: string, ...args: string[]) => {
    const { status, stderr } = spawnSync(name, args, { cwd: folder.path, env: environment, encoding: 'utf8' });
    if (status !== 0) throw new Error(`${name}: ${stderr}`);
  };

  /** What a paravisor puts into the TPM: its report, over JSON that names the TPM's key. */
  function setReport(kind: 'SEV_SNP' | 'TDX'): void {
    const { n } = createPublicKey(readFileSync(join(folder.path, 'ak.pem'))).export({ format: 'jwk' });
    const text = Buffer.from(
      JSON.stringify({ keys: [{ kid: 'HCLAkPub', kty: 'RSA', e: 'AQAB', n }], 'user-data': '' }),
    );
    const reportData = Buffer.concat([createHash('sha256').update(text).digest(), Buffer.alloc(32)]);
    quoteData = reportData;
    const hardware = kind === 'SEV_SNP' ? makeSnpReport('Genoa', leaf, { reportData }) : Buffer.alloc(1184, 0x7d);
    const header = Buffer.concat([Buffer.from('HCLA'), u32(2), u32(0), u32(2), Buffer.alloc(16)]);
    const runtime = [u32(20 + text.length), u32(1), u32(kind === 'SEV_SNP' ? 2 : 4), u32(1), u32(text.length)];
    writeFileSync(join(folder.path, 'hcl'), Buffer.concat([header, hardware, ...runtime, text], 2048));
    spawnSync('tpm2_nvundefine', ['-C', 'o', '0x01400001'], { env: environment });
    tool('tpm2_nvdefine', '-C', 'o', '-s', '2048', '-a', 'ownerread|ownerwrite', '0x01400001');
    tool('tpm2_nvwrite', '-C', 'o', '-i', 'hcl', '0x01400001');
  }
  let quoteData = Buffer.alloc(64);

  beforeAll(async () => {
    const port = await twoFreePorts();
    const state = join(folder.path, 'state');
    mkdirSync(state);
    environment = { PATH: process.env.PATH ?? '', TPM2TOOLS_TCTI: `swtpm:host=127.0.0.1,port=${port}` };
    tpm = spawn('swtpm', [
      ...['socket', '--tpm2', '--tpmstate', `dir=${state}`, '--flags', 'not-need-init,startup-clear'],
      ...['--server', `type=tcp,port=${port}`, '--ctrl', `type=tcp,port=${port + 1}`],
    ]);
    let said = '';
    tpm.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    for (let tries = 0; spawnSync('tpm2_getcap', ['properties-fixed'], { env: environment }).status !== 0; tries++) {
      if (tries > 50) throw new Error(`swtpm does not answer: ${said}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const attributes = 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|noda';
    tool('tpm2_createprimary', '-C', 'e', '-G', 'rsa2048:rsassa-sha256:null', '-a', attributes, '-c', 'ak.ctx');
    tool('tpm2_evictcontrol', '-C', 'o', '-c', 'ak.ctx', '0x81000003');
    tool('tpm2_readpublic', '-c', '0x81000003', '-f', 'pem', '-o', 'ak.pem');
    tool('tpm2_pcrextend', `4:sha256=${'ab'.repeat(32)}`);
    service = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      answer(request, response);
    });
    await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
    imds_url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
  });
  beforeEach(() => {
    asked = [];
  });
  afterAll(() => {
    service?.close();
    tpm?.kill();
    folder.remove();
  });

  /** AMD's service stands beside Azure's. */
  const amdOf = (cache: string) =>
    createAmdEndorsements({
      cache_dir: join(folder.path, cache),
      kds_url: imds_url,
      fetch,
      now_ms: () => AT.getTime(),
      roots: pem(amdRoot.ark),
    });
  const create = (over: Partial<AzureOptions> = {}) =>
    createAzureCollector({
      amd: amdOf('amd'),
      intel: { endorse: async () => ({ collateral: makeCollateral(intelRoot) }) },
      fetch,
      imds_url,
      environment,
      ...over,
    });
  const certificates: RequestListener = ({ url, headers }, response) => {
    if (url === '/metadata/THIM/amd/certification' && headers.metadata === 'true')
      return void response.end(
        JSON.stringify({ vcekCert: pem(leaf), certificateChain: pem(amdRoot.ask, amdRoot.ark), tcbm: '00' }),
      );
    if (url?.endsWith('/crl')) return void response.end(amdCrl(amdRoot));
    response.writeHead(404).end();
  };
  const failed = ({ checks }: Awaited<ReturnType<typeof appraiseCpu>>) =>
    checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);

  it('of SEV-SNP verifies: the processor vouches for the TPM, which signed our bytes and its registers', async () => {
    setReport('SEV_SNP');
    answer = certificates;
    const collector = await create();
    expect(collector.type).toBe('AZURE_SEV_SNP');
    const evidence = await collector.collect(REPORT_DATA, never);
    expect(asked[0]).toBe('GET /metadata/THIM/amd/certification');
    // Without the room that the TPM has behind it.
    expect(Buffer.from(evidence.report, 'base64').toString('latin1')).toMatch(/"user-data":""\}$/);
    const options = {
      roots: { amd: pem(amdRoot.ark) },
      expected: { reportData: D.toString('hex') },
      at: AT,
    };
    const report = await appraiseCpu(JSON.stringify(evidence), options);
    expect(failed(report)).toEqual([]);
    expect(report.claims).toMatchObject({ type: 'AZURE_SEV_SNP', product: 'Genoa' });
    const extended = createHash('sha256').update(Buffer.alloc(32)).update(Buffer.alloc(32, 0xab)).digest('hex');
    expect(report.claims?.pcrs?.[4]).toBe(extended);
    const other = await appraiseCpu(JSON.stringify(evidence), {
      ...options,
      expected: { reportData: 'd8'.repeat(32) },
    });
    expect(failed(other)).toEqual(['cpu_binding cpu_binding_mismatch']);
  });

  it('of TDX has the quote that the metadata service makes of the report', async () => {
    setReport('TDX');
    let body = '';
    answer = (request, response) => {
      request.on('data', (more) => {
        body += more;
      });
      request.on('end', () => {
        const quote = makeQuote(intelRoot, makePck(intelRoot), { reportData: quoteData }).toString('base64url');
        response.end(JSON.stringify({ quote }));
      });
    };
    const collector = await create();
    const evidence = await collector.collect(REPORT_DATA, never);
    expect(asked).toEqual(['POST /acc/tdquote']);
    expect(Buffer.from(JSON.parse(body).report, 'base64url')).toEqual(Buffer.alloc(1024, 0x7d));
    const report = await appraiseCpu(JSON.stringify(evidence), {
      at: AT,
      roots: { intel: pem(intelRoot.root) },
      expected: { reportData: D.toString('hex') },
    });
    expect(failed(report)).toEqual([]);
    expect(report.claims?.type).toBe('AZURE_TDX');
  });

  const failure = async (made: Promise<unknown>) => {
    const error = await made.then(
      () => null,
      (one: unknown) => one,
    );
    expect(error).toBeInstanceOf(AttesterError);
    return error as AttesterError;
  };

  it('says what is wrong: no tools, no TPM, no report, a report of something else, no service, a service that hangs', async () => {
    setReport('TDX');
    answer = (_request, response) => void response.writeHead(500).end('{}');
    expect((await failure(create({ environment: { PATH: '/nowhere' } }))).message).toMatch(
      /tpm2_nvread is not installed/,
    );
    const gone = { ...environment, TPM2TOOLS_TCTI: 'swtpm:host=127.0.0.1,port=1' };
    expect((await failure(create({ environment: gone }))).message).toMatch(/tpm2_nvread failed/);
    const collector = await create({ deadline_ms: 5_000 });
    const away = await failure(collector.collect(REPORT_DATA, never));
    expect([away.retryable, away.message]).toEqual([
      true,
      expect.stringMatching(/metadata service, \/acc\/tdquote: it answered 500/),
    ]);
    answer = (_request, response) => void response.end('{"quote":7}');
    expect((await failure(collector.collect(REPORT_DATA, never))).message).toMatch(/gave no quote/);
    for (const [text, words] of [
      ['null', /something else than a JSON object$/],
      ['SECRET', /something else than a JSON object$/],
      [`"${'x'.repeat(300_000)}"`, /more than/],
    ] as const) {
      answer = (_request, response) => void response.end(text);
      const { message } = await failure(collector.collect(REPORT_DATA, never));
      expect(message).toMatch(words);
      expect(message).not.toContain('SECRET');
    }
    answer = () => {};
    const hanging = await create({ deadline_ms: 1_500 });
    expect((await failure(hanging.collect(REPORT_DATA, never))).message).toMatch(/metadata service.*timeout/);
    writeFileSync(join(folder.path, 'other'), Buffer.alloc(2048, 1));
    tool('tpm2_nvwrite', '-C', 'o', '-i', 'other', '0x01400001');
    expect((await failure(create())).message).toMatch(/paravisor's report/);
    tool('tpm2_nvundefine', '-C', 'o', '0x01400001');
    expect((await failure(create())).message).toMatch(/tpm2_nvread failed/);
  });

  it("of SEV-SNP asks AMD where Azure's service has no certificates, and ends with who asked", async () => {
    setReport('SEV_SNP');
    const CHAIN = '/vcek/v1/Genoa/cert_chain';
    const LEAF = /^GET \/vcek\/v1\/Genoa\/[0-9a-f]{128}\?/;
    answer = (request, response) => {
      if (request.url?.startsWith('/metadata')) return void response.writeHead(404).end();
      if (request.url === CHAIN) return void response.end(pem(amdRoot.ask, amdRoot.ark));
      if (LEAF.test(`GET ${request.url}`)) return void response.end(leaf.der);
      certificates(request, response);
    };
    const collector = await create({ amd: amdOf('amd of its own') });
    const leaving = AbortSignal.abort(new Error('the gateway left'));
    await expect(collector.collect(REPORT_DATA, leaving)).rejects.toThrow('the gateway left');
    expect(asked).toEqual([]);
    const evidence = await collector.collect(REPORT_DATA, never);
    expect(asked).toEqual([
      'GET /metadata/THIM/amd/certification',
      expect.stringMatching(LEAF),
      `GET ${CHAIN}`,
      'GET /vcek/v1/Genoa/crl',
    ]);
    expect(failed(await appraiseCpu(JSON.stringify(evidence), { at: AT, roots: { amd: pem(amdRoot.ark) } }))).toEqual(
      [],
    );
  });
});

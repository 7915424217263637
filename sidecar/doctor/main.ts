// `countersign doctor`: reports what this node has and lacks for attestation. Exits 0, 1 when a check fails, 2 on wrong usage.
import { parseArgs } from 'node:util';
import { httpUrl } from '../../node/settings.ts';
import { ConfigError, loadConfig } from '../common/config.ts';
import { examine, printFindings } from './examine.ts';
import { exitCode } from './finding.ts';
import { DEFAULT_GATEWAY } from './gateway-check.ts';
import { thisHost } from './host.ts';

const USAGE = `countersign doctor [--json] [--gateway URL]   look at this node: driver, confidential mode, devices, services,
                              processor, clock, socket, one trial attestation, the gateway's canary

--gateway URL                 the gateway whose /health has the canary, by default ${DEFAULT_GATEWAY}

It reads the sidecar's variables: docs/configuration.md.

exit status: 0 nothing fails, 1 something does, 2 usage`;

const status = await run(process.argv.slice(2));
// A driver call that hangs must not keep the process alive.
process.stdout.write('', () => process.exit(status));

async function run(argv: readonly string[]): Promise<number> {
  try {
    const options = {
      json: { type: 'boolean' },
      gateway: { type: 'string', default: DEFAULT_GATEWAY },
      help: { type: 'boolean', short: 'h' },
    } as const;
    // As `countersign doctor`, the command's own name comes first.
    const args = argv[0] === 'doctor' ? argv.slice(1) : [...argv];
    const { values } = parseArgs({ args, options, strict: true });
    if (values.help) {
      console.log(USAGE);
      return 0;
    }
    const gateway = httpUrl.safeParse(values.gateway);
    if (!gateway.success) throw new ConfigError(`--gateway ${gateway.error.issues[0]?.message}`);
    const config = loadConfig(process.env);
    const findings = await examine(thisHost(config.nvattest_environment), config, gateway.data);
    const code = exitCode(findings);
    console.log(values.json ? JSON.stringify({ ok: code === 0, findings }, null, 2) : printFindings(findings));
    return code;
  } catch (error) {
    const isUsage = error instanceof TypeError && (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
    if (!isUsage && !(error instanceof ConfigError)) throw error;
    console.error(`countersign: ${(error as Error).message}\nsee --help`);
    return 2;
  }
}

// The gateway's process with other constants, as JSON in TEST_LIMITS, which nothing but this entry reads.
import { LIMITS } from '../../gateway/base/limits.ts';

const limits = JSON.parse(process.env.TEST_LIMITS ?? '{}') as Partial<typeof LIMITS>;
for (const name of Object.keys(limits)) if (!(name in LIMITS)) throw new Error(`no constant of the gateway: ${name}`);
Object.assign(LIMITS, limits);
await import('../../gateway/main.ts');

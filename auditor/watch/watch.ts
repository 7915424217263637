// `countersign watch`: asks each node of a list again and again for a proof, and keeps the history that everybody can check.
import type { OwnCommand } from '../../verify/cli/args.ts';
import { GPU, JSON_OUTPUT } from '../../verify/cli/table.ts';

export const WATCH: OwnCommand = {
  name: 'watch',
  operands: 'NODES',
  text: 'ask each node of NODES again and again for a proof, and write a site and a history that others can check',
  options: [
    { name: 'out', value: 'DIR', text: 'the folder of site, history and proofs; made where it does not exist' },
    { name: 'every', value: 'TIME', text: 'how often, such as 90s, 5m or 1h; 5m without it' },
    { name: 'once', text: 'one round; the exit status says how it was' },
    {
      name: 'max-disk',
      value: 'MIB',
      text: 'what history and proofs may take, in MiB; the oldest go; 1024 without it',
    },
    {
      name: 'since',
      value: 'TIME|ENTRY',
      text: 'print what changed after this time or entry of the history in --out, and ask nobody',
    },
    ...GPU.filter(({ name }) => name !== 'at'),
    JSON_OUTPUT,
  ],
  examples: [
    'countersign watch nodes.json --out /var/www/watch --every 5m',
    'countersign watch nodes.json --out watch --once || mail -s watch ops@example.com',
    'countersign watch --out watch --since 2026-11-26T12:00:00Z',
  ],
  // Only this command loads what seals and what writes the site.
  run: async (args) => (await import('./run.ts')).run(args),
};

// A network of its own for the test's Docker: a namespace with one cable to this machine, so that nothing of ours touches its firewall.
import { randomBytes } from 'node:crypto';
import { MissingPart } from '../support/debian.ts';
import { attempt, run } from './command.ts';

export interface Node {
  /** Of the namespace. */
  readonly path: string;
  /** Where published ports are reached from this machine. */
  readonly address: string;
  /** This machine, as seen from the node: its way out into the world. */
  readonly outside: string;
  remove(): Promise<void>;
}

/** @throws {MissingPart} where namespaces cannot be made. */
export async function makeNode(): Promise<Node> {
  const id = randomBytes(3);
  const name = `cs${id.toString('hex')}`;
  // 198.18.0.0/15 is for tests (RFC 2544), and four addresses make a cable.
  const [a = 0, b = 0] = id;
  const last = b & 0xfc;
  const [outside, address] = [`198.18.${a}.${last + 1}`, `198.18.${a}.${last + 2}`];
  const made = await attempt('ip', ['netns', 'add', name]);
  if (made.code !== 0) throw new MissingPart(`network namespaces (${made.stderr.trim()})`);
  const remove = async () => {
    await run('ip', ['netns', 'delete', name]);
    await attempt('ip', ['link', 'delete', `${name}o`]);
  };
  try {
    const ip = (...args: string[]) => run('ip', args);
    await ip('link', 'add', `${name}o`, 'type', 'veth', 'peer', 'name', 'cable', 'netns', name);
    await ip('address', 'add', `${outside}/30`, 'dev', `${name}o`);
    await ip('link', 'set', `${name}o`, 'up');
    await ip('-n', name, 'link', 'set', 'lo', 'up');
    await ip('-n', name, 'address', 'add', `${address}/30`, 'dev', 'cable');
    await ip('-n', name, 'link', 'set', 'cable', 'up');
    await ip('-n', name, 'route', 'add', 'default', 'via', outside);
  } catch (error) {
    await remove();
    throw error;
  }
  return { path: `/run/netns/${name}`, address, outside, remove };
}

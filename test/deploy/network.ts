// What NetworkPolicies allow, by their documented rules: once a policy selects a pod for a direction, only what some policy opens goes.
import type { Manifest } from './manifests.ts';

/** A pod, by the labels of itself and its namespace; or an address outside. */
export type Peer =
  | { labels: Record<string, string>; namespace: Record<string, string>; ports?: Record<string, number> }
  | { address: string };

const HERE = { 'kubernetes.io/metadata.name': 'countersign' };
export const inNamespace = (labels: Record<string, string>, ports: Record<string, number> = {}): Peer => ({
  labels,
  namespace: HERE,
  ports,
});

/** May `from` open a TCP connection to `port` of `to`? Both ends must allow it. */
export function reaches(policies: readonly Manifest[], from: Peer, to: Peer, port: number): boolean {
  return side(policies, 'Egress', from, to, to, port) && side(policies, 'Ingress', to, from, to, port);
}

function side(policies: readonly Manifest[], type: string, self: Peer, other: Peer, to: Peer, port: number): boolean {
  if ('address' in self || self.namespace !== HERE) return true;
  const own = policies.filter(({ spec }) => spec.policyTypes.includes(type) && matches(spec.podSelector, self.labels));
  if (own.length === 0) return true;
  return own.some(({ spec }) =>
    (spec[type.toLowerCase()] ?? []).some(
      (rule: Manifest) =>
        portAllowed(rule.ports, to, port) && peerAllowed(rule[type === 'Egress' ? 'to' : 'from'], other),
    ),
  );
}

function portAllowed(ports: Manifest[] | undefined, to: Peer, port: number): boolean {
  const named = 'address' in to ? {} : (to.ports ?? {});
  return (
    ports === undefined ||
    ports.some((one) => one.protocol === 'TCP' && (typeof one.port === 'string' ? named[one.port] : one.port) === port)
  );
}

const peerAllowed = (peers: Manifest[] | undefined, other: Peer) =>
  peers === undefined ||
  peers.some(({ podSelector, namespaceSelector, ipBlock }) => {
    if ('address' in other) return ipBlock !== undefined && inBlock(ipBlock, other.address);
    if (ipBlock !== undefined) return false;
    const namespace =
      namespaceSelector === undefined ? other.namespace === HERE : matches(namespaceSelector, other.namespace);
    return namespace && (podSelector === undefined || matches(podSelector, other.labels));
  });

const matches = ({ matchLabels = {} }: Manifest, labels: Record<string, string>) =>
  Object.entries(matchLabels).every(([key, value]) => labels[key] === value);

const inBlock = ({ cidr, except = [] }: { cidr: string; except?: string[] }, address: string) =>
  inCidr(cidr, address) && !except.some((one) => inCidr(one, address));

/** IPv4 alone: addresses of the tests. */
function inCidr(cidr: string, address: string): boolean {
  const [base = '', bits = '32'] = cidr.split('/');
  if (base.includes(':')) return false;
  const size = 2 ** (32 - Number(bits));
  return Math.floor(number(base) / size) === Math.floor(number(address) / size);
}
const number = (address: string) => address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

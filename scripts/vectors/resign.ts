// A manifest of the twin changed in its text and signed anew: for what its maker has no option for.
import type { RimSigner } from '../../test/twin/rim-signer.ts';
import { type Element, serialize, withSignature } from '../../test/twin/xml.ts';
import { isElement, type Element as Parsed, parseXml } from '../../verify/gpu/rim/xml.ts';

const SIGNATURE = /<ds:Signature [\s\S]*<\/ds:Signature>/;

export function resigned(xml: string, signer: RimSigner, edit: (unsigned: string) => string): string {
  const root = element(parseXml(edit(xml.replace(SIGNATURE, ''))), new Map());
  return serialize(withSignature(root, signer.signer.key, signer.chain));
}

/** From the verifier's tree to the maker's: what an element declares is what its parent has not in scope. */
function element(parsed: Parsed, above: ReadonlyMap<string, string>): Element {
  const declared = [...parsed.scope].filter(([prefix, uri]) => above.get(prefix) !== uri);
  const qualified = (prefix: string, local: string) => (prefix === '' ? local : `${prefix}:${local}`);
  const attributes = parsed.attributes.map(({ prefix, local, value }) => [qualified(prefix, local), value] as const);
  return {
    name: qualified(parsed.prefix, parsed.local),
    ...(declared.length === 0 ? {} : { namespaces: Object.fromEntries(declared) }),
    ...(attributes.length === 0 ? {} : { attributes: Object.fromEntries(attributes) }),
    children: parsed.children.map((child) => (isElement(child) ? element(child, parsed.scope) : child)),
  };
}

/** As genuine manifests name it: the chip, which the certificates name too. */
export const withProduct = (xml: string, signer: RimSigner): string =>
  resigned(xml, signer, (text) => text.replace(/ product="SIMULATED /, ' product="'));

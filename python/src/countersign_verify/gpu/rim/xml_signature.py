"""
Reads the one ds:Signature of a RIM (XML Signature 1.1) and refuses every form but NVIDIA's: enveloped, over the whole
document, by closed algorithms. What it returns is not yet trusted: verify_signature below makes it so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha384

from ...common.checks import CheckFailure
from ...proto.bytes import EncodingError, from_base64, utf8
from ...x509 import Certificate, DerError, ecdsa_verify_raw, parse_certificate
from .xml import (
    XML_NAMESPACE,
    Attribute,
    Element,
    child_elements,
    descendants,
    is_named,
    malformed,
    only_elements,
    only_text,
)

# Canonical XML 1.1 without comments (https://www.w3.org/TR/xml-c14n11/), for a whole document and for one element of
# it.

# Simple inheritable attributes (§2.4). `xml:id` is not inherited.
_INHERITED = ("lang", "space")


def canonical_document(root: Element, omitted: Element) -> str:
    """The canonical form of the document below `root`, without the element `omitted` and all below it."""
    out: list[str] = []
    _render(out, root, {}, root.attributes, omitted)
    return "".join(out)


def canonical_subset(element: Element, ancestors: Sequence[Element]) -> str:
    """
    The canonical form of the document subset that is `element` and all below it; `ancestors` from the root down.
    @raises CheckFailure where an ancestor has `xml:base`, whose joining (§2.4) no RIM has a use for.
    """
    out: list[str] = []
    _render(out, element, {}, [*element.attributes, *_imported(element, ancestors)], None)
    return "".join(out)


def _imported(element: Element, ancestors: Sequence[Element]) -> list[Attribute]:
    found: dict[str, Attribute] = {}
    for ancestor in ancestors:
        for one in ancestor.attributes:
            if one.namespace != XML_NAMESPACE:
                continue
            if one.local == "base":
                raise malformed("xml:base above what is signed")
            if one.local in _INHERITED:
                found[one.local] = one
    own = {one.local for one in element.attributes if one.namespace == XML_NAMESPACE}
    return [one for local, one in found.items() if local not in own]


def _render(
    out: list[str],
    element: Element,
    above: Mapping[str, str],
    attributes: Sequence[Attribute],
    omitted: Element | None,
) -> None:
    """`above`: the namespaces that the nearest element in the output has rendered or inherited."""
    name = element.local if element.prefix == "" else f"{element.prefix}:{element.local}"
    out.append(f"<{name}{_namespace_nodes(element.scope, above)}")
    # §2.2: by namespace URI, then by local name; no namespace comes first.
    for one in sorted(attributes, key=lambda one: (one.namespace, one.local)):
        qualified = one.local if one.prefix == "" else f"{one.prefix}:{one.local}"
        out.append(f' {qualified}="{_escaped_attribute(one.value)}"')
    out.append(">")
    for node in element.children:
        if isinstance(node, str):
            out.append(_escaped_text(node))
        elif node is not omitted:
            _render(out, node, element.scope, node.attributes, omitted)
    out.append(f"</{name}>")


def _namespace_nodes(scope: Mapping[str, str], above: Mapping[str, str]) -> str:
    """§2.3: the default namespace first, then by prefix; none that an element above has rendered the same."""
    if scope is above:
        return ""
    fresh = sorted((prefix, uri) for prefix, uri in scope.items() if uri != above.get(prefix, ""))
    return "".join(f' xmlns{"" if prefix == "" else f":{prefix}"}="{_escaped_attribute(uri)}"' for prefix, uri in fresh)


_TEXT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"})
_ATTRIBUTE_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#x9;", "\n": "&#xA;", "\r": "&#xD;"}
)


def _escaped_text(text: str) -> str:
    return text.translate(_TEXT_ESCAPES)


def _escaped_attribute(text: str) -> str:
    return text.translate(_ATTRIBUTE_ESCAPES)


_XMLDSIG = "http://www.w3.org/2000/09/xmldsig#"
_C14N_11 = "http://www.w3.org/2006/12/xml-c14n11"
_ENVELOPED = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
_ECDSA_SHA384 = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"
_SHA384 = "http://www.w3.org/2001/04/xmldsig-more#sha384"
_DIGEST_BYTES = 48
# r ‖ s on P-384.
_SIGNATURE_BYTES = 96
_MAX_CERTIFICATES = 8
_SPACES = re.compile("[ \\t\\n\\r]+")


@dataclass(frozen=True)
class EnvelopedSignature:
    element: Element
    signed_info: Element
    digest: bytes
    """The SHA-384 of the canonical document, as SignedInfo states it."""
    value: bytes
    certificates: Sequence[Certificate]
    """As they stand in ds:X509Data: the signer's first."""


def read_signature(root: Element) -> EnvelopedSignature:
    """@raises CheckFailure: rim_malformed for another form, rim_signature_invalid for another algorithm."""
    element = _only_signature(root)
    parts = _parts(element, "Signature")
    if len(parts) != 3:
        raise malformed("Signature is not SignedInfo, SignatureValue and KeyInfo")
    signed_info, signature_value, key_info = parts
    return EnvelopedSignature(
        element=element,
        signed_info=signed_info,
        digest=_signed_digest(signed_info),
        value=_bytes(signature_value, "SignatureValue", _SIGNATURE_BYTES),
        certificates=_certificates(key_info),
    )


def _only_signature(root: Element) -> Element:
    """Exactly one signature, a child of the root; elements of its namespace elsewhere are rejected."""
    element = next((one for one in child_elements(root) if is_named(one, _XMLDSIG, "Signature")), None)
    if element is None:
        raise malformed("the document has no signature")
    inside = set(descendants(element))
    for other in descendants(root):
        if other.namespace != _XMLDSIG:
            continue
        if other not in inside:
            raise malformed("the document has more than one signature")
        if other is not element and other.local == "Signature":
            raise malformed("a signature within the signature")
    return element


def _signed_digest(signed_info: Element) -> bytes:
    """XML Signature §4.4: which algorithms, and over what."""
    canonicalization, method, reference, *more = _at_least(3, _parts(signed_info, "SignedInfo"))
    _algorithm(canonicalization, "CanonicalizationMethod", _C14N_11)
    _algorithm(method, "SignatureMethod", _ECDSA_SHA384)
    if more:
        raise malformed("SignedInfo has more than one reference")
    transforms, digest_method, digest_value, *rest = _at_least(3, _parts(reference, "Reference", {"URI": ""}))
    enveloped, canonical, *others = _at_least(2, _parts(transforms, "Transforms"))
    _algorithm(enveloped, "Transform", _ENVELOPED)
    _algorithm(canonical, "Transform", _C14N_11)
    if others:
        raise malformed("Transforms has more than two transforms")
    _algorithm(digest_method, "DigestMethod", _SHA384)
    if rest:
        raise malformed("Reference has more than three parts")
    return _bytes(digest_value, "DigestValue", _DIGEST_BYTES)


def _at_least(count: int, found: Sequence[Element]) -> list[Element | None]:
    return [*found, *[None] * (count - len(found))]


def _certificates(key_info: Element) -> list[Certificate]:
    data = _parts(key_info, "KeyInfo")
    if len(data) != 1:
        raise malformed("KeyInfo is not one X509Data")
    found = _parts(data[0], "X509Data")
    if not found:
        raise malformed("X509Data has no certificate")
    if len(found) > _MAX_CERTIFICATES:
        raise malformed(f"X509Data has more than {_MAX_CERTIFICATES} certificates")
    try:
        return [parse_certificate(_bytes(element, "X509Certificate")) for element in found]
    except DerError as cause:
        raise malformed(f"X509Certificate: {cause}") from cause


def _parts(element: Element | None, local: str, attributes: Mapping[str, str] | None = None) -> list[Element]:
    """The child elements of one that must be `local`, with these attributes and no others."""
    return only_elements(_expected(element, local, attributes or {}))


def _algorithm(element: Element | None, local: str, uri: str) -> None:
    if element is None or not is_named(element, _XMLDSIG, local):
        raise malformed(f"{local} is missing")
    if element.attributes and element.attributes[0].local == "Algorithm" and element.attributes[0].value != uri:
        raise CheckFailure("rim_signature_invalid", f"{local} is not the one algorithm that is accepted")
    if _parts(element, local, {"Algorithm": uri}):
        raise malformed(f"{local} has parameters")


def _bytes(element: Element | None, local: str, length: int | None = None) -> bytes:
    text = only_text(_expected(element, local, {}))
    try:
        value = from_base64(_SPACES.sub("", text))
    except EncodingError as cause:
        raise malformed(f"{local} is not base64") from cause
    if length is not None and len(value) != length:
        raise malformed(f"{local} has not {length} bytes")
    return value


def _expected(element: Element | None, local: str, attributes: Mapping[str, str]) -> Element:
    if element is None or not is_named(element, _XMLDSIG, local):
        raise malformed(f"{local} is missing")
    if {(one.namespace, one.local): one.value for one in element.attributes} != {
        ("", name): value for name, value in attributes.items()
    }:
        raise malformed(f"{local} has other attributes than it may")
    return element


# Verifies a RIM's enveloped XML signature (XML Signature 1.1 §3.2) and hands back the very text that was signed.


@dataclass(frozen=True)
class SignedDocument:
    text: str
    """
    The canonical text whose digest was signed: the document without its signature. Read values from nothing else.
    """
    chain: Sequence[Certificate]
    """The signer's chain as it came, leaf first. The leaf signed; the chain is not verified yet."""


def verify_signature(root: Element) -> SignedDocument:
    """@raises CheckFailure: rim_signature_invalid, or rim_malformed for a form that is not accepted."""
    signature = read_signature(root)
    text = canonical_document(root, signature.element)
    if sha384(utf8(text)).digest() != signature.digest:
        raise _invalid("the digest of the document is another")
    leaf = signature.certificates[0]
    if leaf.curve != "P-384":
        raise _invalid("the signer has no P-384 key")
    if leaf.is_ca or not leaf.may("digitalSignature"):
        raise _invalid("the signer may not sign documents")
    signed_info = utf8(canonical_subset(signature.signed_info, [root, signature.element]))
    if not ecdsa_verify_raw(leaf, "SHA-384", signature.value, signed_info):
        raise _invalid("the signature does not verify under the signer")
    return SignedDocument(text, signature.certificates)


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("rim_signature_invalid", message)

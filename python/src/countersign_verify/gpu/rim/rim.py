"""
A verified reference integrity manifest: parsed, its XML signature and its signer's chain checked, then read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Literal

from ...common.checks import CheckFailure
from ...common.lru import LruMap
from ...proto.bytes import is_longer, utf8
from ...x509 import Certificate, ChainError, verify_chain
from .xml import Element, attribute, child_elements, is_named, malformed, parse_xml
from .xml_signature import verify_signature

# Reads the reference values out of a RIM: a SWID tag (ISO/IEC 19770-2) with the TCG's RIM attributes, NVIDIA's profile.

_SWID = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd"
_TCG_RIM = "https://trustedcomputinggroup.org/resource/tcg-reference-integrity-manifest-rim-information-model/"
_SHA384_HASH = "http://www.w3.org/2001/04/xmlenc#sha384"
_OPAQUE_DATA = "https://docs.nvidia.com/attestation/specs/latest/opaque-data.html"

# A resource with an index from here on bounds opaque data; the index less this base is the data's type.
_OPAQUE_INDEX_BASE = 0x1000
_MAX_OPAQUE_TYPE = 0xFFFF
# Index i is measurement block i + 1, and SPDM numbers blocks up to 0xfe.
_MAX_MEASUREMENT_INDEX = 0xFD
_MAX_ALTERNATIVES = 32
_MAX_TEXT_CHARACTERS = 256

_WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
_HEX_VALUE = re.compile("([0-9A-Fa-f]{2})+")
_BIOS_VERSION = re.compile(r"[0-9A-Fa-f]{2}(\.[0-9A-Fa-f]{2}){4}")
_SWITCH = re.compile(r"\bLS_?\d|switch", re.ASCII | re.IGNORECASE)

Kind = Literal["driver", "vbios", "switch-bios"]


@dataclass(frozen=True)
class Measurement:
    active: bool
    """Only an active measurement is compared."""
    values: Sequence[str]
    """The values of which the device's must be one: lowercase hexadecimal."""
    name: str
    size: int
    """Of each value, in bytes."""


@dataclass(frozen=True)
class Manifest:
    id: str
    """`tagId`. NVIDIA writes a hash there, not the name that its RIM service files the document under."""
    version: str
    """`colloquialVersion`: of the driver or the BIOS."""
    kind: Kind
    """Told from version and product. Whose RIM it is, `version` and the measurements decide."""
    product: str
    """'' when the document names none."""
    edition: str
    manufacturer_id: str
    """`FirmwareManufacturerId`: NVIDIA's is 5703. '' when the document names none."""
    measurements: Mapping[int, Measurement]
    """By RIM index, counted from 0."""
    minimum_svns: Mapping[int, int]
    """The least security version number that a field of the opaque data may have, by its type."""


def read_manifest(root: Element) -> Manifest:
    """@raises CheckFailure: rim_malformed, saying what is wrong."""
    if not is_named(root, _SWID, "SoftwareIdentity"):
        raise malformed("the document is not a SoftwareIdentity")
    for flag in ("corpus", "patch", "supplemental"):
        if attribute(root, flag) not in (None, "false"):
            raise malformed(f"the tag is {flag}")
    measurements: dict[int, Measurement] = {}
    minimum_svns: dict[int, int] = {}
    for index, resource in _by_index(_only(root, "Payload")).items():
        if index < _OPAQUE_INDEX_BASE:
            measurements[index] = _measurement(resource, index)
        elif _is_active(resource, index):
            minimum_svns[index - _OPAQUE_INDEX_BASE] = _minimum_svn(resource, index)
    meta = _only(root, "Meta")
    version = _required(meta, "colloquialVersion")
    product = _bounded(attribute(meta, "product") or "", "product")
    edition = _bounded(attribute(meta, "edition") or "", "edition")
    return Manifest(
        id=_required(root, "tagId"),
        version=version,
        kind=_kind(version, f"{product} {edition}"),
        product=product,
        edition=edition,
        manufacturer_id=_bounded(attribute(meta, "FirmwareManufacturerId", _TCG_RIM) or "", "FirmwareManufacturerId"),
        measurements=measurements,
        minimum_svns=minimum_svns,
    )


def _kind(version: str, device: str) -> Kind:
    """
    Documents do not state their kind. A BIOS version is five pairs of digits, and NVIDIA's switches are its LS family.
    """
    if _BIOS_VERSION.fullmatch(version) is None:
        return "driver"
    return "switch-bios" if _SWITCH.search(device) else "vbios"


def _only(root: Element, local: str) -> Element:
    found = [child for child in child_elements(root) if is_named(child, _SWID, local)]
    if not found:
        raise malformed(f"the document has no {local}")
    if len(found) > 1:
        raise malformed(f"the document has more than one {local}")
    return found[0]


def _by_index(payload: Element) -> dict[int, Element]:
    resources: dict[int, Element] = {}
    for resource in child_elements(payload):
        if not is_named(resource, _SWID, "Resource") or attribute(resource, "type") != "Measurement":
            raise malformed("the Payload has something else than measurements")
        index = _whole_number(resource, "index", "a Resource")
        if _MAX_MEASUREMENT_INDEX < index < _OPAQUE_INDEX_BASE or index > _OPAQUE_INDEX_BASE + _MAX_OPAQUE_TYPE:
            raise malformed(f"index {index} is out of range")
        if index in resources:
            raise malformed(f"index {index} stands twice")
        resources[index] = resource
    if not resources:
        raise malformed("the Payload has no measurement")
    return resources


def _measurement(resource: Element, index: int) -> Measurement:
    label = f"measurement {index}"
    active = _is_active(resource, index)
    alternatives = _whole_number(resource, "alternatives", label)
    if not 1 <= alternatives <= _MAX_ALTERNATIVES:
        raise malformed(f"{label}: alternatives is out of range")
    size = _whole_number(resource, "size", label)
    if size < 1:
        raise malformed(f"{label}: size is out of range")
    if sum(one.namespace == _SHA384_HASH for one in resource.attributes) > alternatives:
        raise malformed(f"{label}: more hashes than alternatives")
    values = []
    for i in range(alternatives):
        value = attribute(resource, f"Hash{i}", _SHA384_HASH)
        if value is None:
            raise malformed(f"{label}: Hash{i} is missing")
        if _HEX_VALUE.fullmatch(value) is None:
            raise malformed(f"{label}: Hash{i} is not hexadecimal")
        if active and len(value) != 2 * size:
            raise malformed(f"{label}: Hash{i} has not {size} bytes")
        values.append(value.lower())
    return Measurement(active, values, _bounded(attribute(resource, "name") or "", "name"), size)


def _minimum_svn(resource: Element, index: int) -> int:
    minimum = _whole_number(resource, "minSvn", f"resource {index}", _OPAQUE_DATA)
    _required(resource, "name")
    return minimum


def _is_active(resource: Element, index: int) -> bool:
    """
    NVIDIA writes Python's words. Any other would be read as active by one of its verifiers and as inactive by the next.
    """
    active = attribute(resource, "active")
    if active not in ("True", "False"):
        raise malformed(f"measurement {index}: active is neither True nor False")
    return active == "True"


def _whole_number(element: Element, local: str, label: str, namespace: str = "") -> int:
    text = attribute(element, local, namespace) or ""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise malformed(f"{label}: {local} is not a whole number")
    return int(text)


def _required(element: Element, local: str) -> str:
    value = attribute(element, local) or ""
    if value == "":
        raise malformed(f"{element.local} has no {local}")
    return _bounded(value, local)


def _bounded(value: str, local: str) -> str:
    if is_longer(value, _MAX_TEXT_CHARACTERS):
        raise malformed(f"{local} is too long")
    return value


@dataclass(frozen=True)
class Rim:
    manifest: Manifest
    signer: Sequence[Certificate]
    """The verified path of who signed it: leaf first, the pinned root last."""


@dataclass(frozen=True)
class _SignedManifest:
    """What does not depend on roots or time: the document's signature verified under the leaf of its own chain."""

    manifest: Manifest
    chain: Sequence[Certificate]


# Refused before it is even hashed; the parser has the limit too.
_MAX_DOCUMENT_BYTES = 1024 * 1024
# A manifest of 64 measurements and its certificates take about 20 KiB.
_MAX_CACHED = 64
# By SHA-256 of the document. Trust in the signer is decided anew at each call.
_cached: LruMap[bytes, _SignedManifest] = LruMap(_MAX_CACHED)


def verify_rim(xml: str | bytes, roots: Sequence[Certificate], at: datetime) -> Rim:
    """
    Verifies a RIM document and reads it. `xml`: the document, as text or as bytes; at most 1 MiB. `roots`: those that
    RIM signers are trusted under; nothing in the document adds one. `at`: the instant at which the signer's
    certificates must be valid.
    @raises CheckFailure: rim_malformed, rim_signature_invalid, rim_chain_invalid, or rim_signer_expired when everything
    but the clock is right.
    """
    too_large = is_longer(xml, _MAX_DOCUMENT_BYTES) if isinstance(xml, str) else len(xml) > _MAX_DOCUMENT_BYTES
    if too_large:
        raise CheckFailure("rim_malformed", "the RIM is too large")
    document = utf8(xml) if isinstance(xml, str) else bytes(xml)
    identity = sha256(document).digest()
    signed = _cached.get(identity) or _verify_document(document)
    _cached.set(identity, signed)
    return Rim(signed.manifest, _signer_path(signed.chain, roots, at))


def _verify_document(document: bytes) -> _SignedManifest:
    root = parse_xml(document)
    try:
        signed = verify_signature(root)
    except CheckFailure:
        # A malformed document is refused as malformed, before its signature. This result is not used.
        read_manifest(root)
        raise
    return _SignedManifest(read_manifest(parse_xml(signed.text)), signed.chain)


# id-kp-codeSigning (RFC 5280 §4.2.1.12).
_CODE_SIGNING = "1.3.6.1.5.5.7.3.3"


def _signer_path(chain: Sequence[Certificate], roots: Sequence[Certificate], at: datetime) -> list[Certificate]:
    # NVIDIA's RIM signers have no extended key usage; its OCSP responders, under the same authorities, have theirs.
    purposes = chain[0].extended_key_usage if chain else None
    if purposes is not None and _CODE_SIGNING not in purposes:
        raise CheckFailure("rim_chain_invalid", "the RIM signer: its certificate is for another purpose")
    try:
        return verify_chain(chain, roots, at)
    except ChainError as cause:
        code: Literal["rim_signer_expired", "rim_chain_invalid"] = (
            "rim_signer_expired" if cause.reason == "expired" else "rim_chain_invalid"
        )
        raise CheckFailure(code, f"the RIM signer: {cause}") from cause

"""
Rechecks the digests by which a detached EAT names its submodules (RFC 9711 §4.2.18, as NVIDIA's verifiers make them).
"""

from __future__ import annotations

import hashlib
import re

from ..common.checks import CheckFailure
from ..proto.bytes import utf8
from ..proto.json import skip_string, top_level_members, without_member, without_space
from .jws import Json, Jws
from .token import Bundle, ParsedToken

_SHA256_NAMES = ("SHA256", "SHA-256")
"""The first is nvattest's and the Python SDK's, the second NRAS's."""
_ADDED_LATER = ("nbf", "exp", "iat", "jti")
"""What the Python SDK adds to a submodule's claims after it has taken their digest."""
_HEX_32 = re.compile("[0-9a-fA-F]{64}")
_NOT_PLAIN = re.compile("[^\x00-~]")


def check_token_digests(parsed: ParsedToken) -> str:
    """
    Returns what was seen.
    @raises CheckFailure: token_digest_mismatch: a digest is another, or a submodule is in one list and not in the
    other.
    """
    if parsed.kind == "jwt":
        named = _submodules(parsed.bundles[0])
        return f"a bare JWT, without the {len(named)} submodules it names" if named else "a bare JWT has no submodules"
    rechecked = sum(_recheck(bundle) for bundle in parsed.bundles)
    count = "1 submodule has" if rechecked == 1 else f"{rechecked} submodules have"
    return f"{count} the digest that the overall JWT names"


def _recheck(bundle: Bundle) -> int:
    named = _submodules(bundle)
    if named is None:
        raise _mismatch("the overall JWT names no submodules")
    if not named.keys() <= bundle.submodules.keys():
        raise _mismatch("a submodule is named and missing")
    for name, jws in bundle.submodules.items():
        if name not in named:
            raise _mismatch(f"{name} is not named by the overall JWT")
        if submodule_digest(jws) != named[name]:
            raise _mismatch(f"the digest of {name} is another")
    return len(bundle.submodules)


def _submodules(bundle: Bundle) -> dict[str, str] | None:
    """The digests by name, in lowercase hexadecimal. None: there is no such claim."""
    if "submods" not in bundle.overall.claims:
        return None
    claim = bundle.overall.claims["submods"]
    if not isinstance(claim, dict):
        raise _mismatch("submods is not an object")
    return {name: _digest_of(value) for name, value in claim.items()}


def _digest_of(value: Json) -> str:
    """`["DIGEST", ["SHA256", hex]]`"""
    label, pair = value if isinstance(value, list) and len(value) == 2 else (None, None)
    algorithm, digest = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
    if label != "DIGEST" or algorithm not in _SHA256_NAMES:
        raise _mismatch("a submodule has no SHA-256 digest")
    if not isinstance(digest, str) or _HEX_32.fullmatch(digest) is None:
        raise _mismatch("a digest is not hexadecimal")
    return digest.lower()


def submodule_digest(jws: Jws) -> str:
    """
    Lowercase hexadecimal SHA-256 of a submodule: of the whole JWT where NRAS or nvattest made it; of its claims, as
    `nvtrust_digest_text` writes them, where the Python SDK did, which is who signs with HS256.
    """
    text = nvtrust_digest_text(jws.payload) if jws.algorithm == "HS256" else jws.text
    return hashlib.sha256(utf8(text)).hexdigest()


def nvtrust_digest_text(payload: str) -> str:
    """
    The text that NVIDIA's Python verifier hashes: the claims before times and id were added, as `json.dumps` writes
    them, with spaces and in ASCII. It is made from the payload's text without decoding it, so that no value is written anew.
    """
    text = payload
    for name in _ADDED_LATER:
        members = top_level_members(text)
        index = next((i for i, member in enumerate(members) if member.key == name), None)
        text = text if index is None else without_member(text, members, index)
    return _spaced(without_space(text))


def _spaced(text: str) -> str:
    parts: list[str] = []
    at = 0
    while (quote := text.find('"', at)) >= 0:
        end = skip_string(text, quote)
        parts += (_separated(text[at:quote]), _NOT_PLAIN.sub(_escaped, text[quote:end]))
        at = end
    return "".join([*parts, _separated(text[at:])])


def _separated(text: str) -> str:
    return text.replace(",", ", ").replace(":", ": ")


def _escaped(character: re.Match[str]) -> str:
    units = character.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("token_digest_mismatch", message)

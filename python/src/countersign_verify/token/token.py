"""Parses a token: its kind, its claims and every nonce in it. Nothing of it is verified yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..proto.bytes import is_longer
from ..proto.json import quote
from ..proto.strict_json import is_number, ordered_names, stringify, whole_number
from .jws import Json, JsonObject, Jws, malformed, parse_json, parse_jws

TokenKind = Literal["nvtrust", "nvattest", "jwt", "nras", "countersign"]


COUNTERSIGN_ISSUER = re.compile(r"countersign\b", re.ASCII | re.IGNORECASE)
_OVERALL_RESULT = "x-nvidia-overall-att-result"
_JWT_CLAIMS = frozenset({"iss", "iat", "nbf", "exp", "jti"})
"""What a JWT adds to the claims that nvattest prints."""


@dataclass(frozen=True)
class TokenDevice:
    """
    A token's claims about one device (EAT claims, RFC 9711 §4, and NVIDIA's own), to be compared with the device's
    report. None: the token has no such claim.
    """

    name: str
    """The submodule's name: `GPU-0`, `SWITCH-0`."""
    verifier: str | None
    """The Python SDK's name for the verifier, or None."""
    nonce: str
    driver: str | None
    vbios: str | None
    """Of the VBIOS, or of a switch's BIOS."""
    ueid: str | None
    """The leaf certificate's serial number, in decimal."""
    hwmodel: str | None
    measres: str | None
    """`success` when every measurement matched, and every value of the opaque data too."""
    secure_boot: bool | None
    debug: str | None
    """`dbgstat`: `disabled` on a device that may be trusted."""
    attester_claims: Mapping[str, int] | None
    """Claims 4.0: values of the opaque data that reference values name, such as security version numbers."""
    claims: JsonObject = field(repr=False)


@dataclass(frozen=True)
class Bundle:
    """A JWT that names submodules by digest, and the submodules beside it."""

    verifier: str | None
    """The Python SDK's name for the verifier that made it: `LOCAL_GPU_CLAIMS`. None where it stands alone."""
    overall: Jws
    submodules: Mapping[str, Jws]
    """By name, `GPU-0`; empty for a bare JWT."""


@dataclass(frozen=True)
class ParsedToken:
    kind: TokenKind
    issuer: str
    """
    `iss` of the verifiers, several joined by a comma; '' when none says. A claim like any other until it is verified.
    """
    overall_result: bool | None
    """None: at least one verifier gives no result and none gives false."""
    nonces: tuple[str, ...]
    """`eat_nonce` of every part that must have one, and of any other that does: each must be the one expected."""
    devices: tuple[TokenDevice, ...]
    envelope: Jws | None
    """The Python SDK's outer JWT, which carries no claims about a device."""
    bundles: tuple[Bundle, ...]


def parse_token(token: str) -> ParsedToken:
    """
    Reads a token of any known shape.
    @raises CheckFailure: token_malformed; also where a part that must carry `eat_nonce` has none.
    """
    shape = _read_shape(token)
    devices = [device for bundle in shape.bundles for device in _devices_of(bundle)]
    if shape.printed is not None:
        _agrees(shape.printed, devices)
    issuers = [text_claim(bundle.overall.claims, "iss") for bundle in shape.bundles]
    outer = None if shape.envelope is None else text_claim(shape.envelope.claims, "eat_nonce")
    inner = [nonce for bundle in shape.bundles for nonce in _nonces_of(bundle)]
    return ParsedToken(
        kind=_kind_of(shape),
        issuer=", ".join(dict.fromkeys(issuer for issuer in issuers if issuer is not None)),
        overall_result=_overall_result(shape),
        nonces=tuple(inner if outer is None else [outer, *inner]),
        devices=tuple(devices),
        envelope=shape.envelope,
        bundles=shape.bundles,
    )


# The shapes that tokens come in, told apart by form alone: no claim decides how a token is parsed.
#
#   JWT                                                         a bare JWT
#   [["JWT", JWT], {"GPU-0": JWT, …}]                           a detached EAT bundle (RFC 9711 §5.2)
#   [["JWT", JWT], {"LOCAL_GPU_CLAIMS": detached EAT, …}]       NVIDIA's Python SDK: one bundle for each verifier
#   {"detached_eat": detached EAT, "claims": […], …}            NVIDIA's nvattest command line


@dataclass(frozen=True)
class _Shape:
    form: Literal["bare", "detached", "nested", "nvattest"]
    bundles: tuple[Bundle, ...]
    envelope: Jws | None = None
    """The Python SDK's outer JWT, which says nothing but who made it and when."""
    printed: JsonObject | None = None
    """What nvattest prints beside its detached EAT."""


_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
"""What ECMAScript trims."""
_MAX_BUNDLES = 8
_MAX_SUBMODULES = 64
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


def _read_shape(token: str) -> _Shape:
    text = token.strip(_SPACE)
    if not text.startswith(("[", "{", '"')):
        return _bare(text)
    value = parse_json(text)
    if isinstance(value, str):
        return _bare(value)
    if isinstance(value, dict):
        return _Shape("nvattest", (_detached(value.get("detached_eat"), None),), printed=value)
    jwt, parts = _pair(value)
    nested = [name for name, part in parts.items() if isinstance(part, list)]
    if not nested:
        return _Shape("detached", (_detached(value, None),))
    if len(nested) != len(parts):
        raise malformed("verifiers and submodules stand side by side")
    if len(nested) > _MAX_BUNDLES:
        raise malformed(f"more than {_MAX_BUNDLES} verifiers")
    return _Shape("nested", tuple(_detached(parts[name], name) for name in nested), envelope=parse_jws(jwt))


def _bare(jwt: str) -> _Shape:
    return _Shape("bare", (Bundle(None, parse_jws(jwt), {}),))


def _detached(value: Json, verifier: str | None) -> Bundle:
    jwt, parts = _pair(value)
    if len(parts) > _MAX_SUBMODULES:
        raise malformed(f"more than {_MAX_SUBMODULES} submodules")
    return Bundle(verifier, parse_jws(jwt), {name: _submodule(part) for name, part in parts.items()})


def _submodule(part: Json) -> Jws:
    if not isinstance(part, str):
        raise malformed("a submodule is not a JWT")
    return parse_jws(part)


def _pair(value: Json) -> tuple[str, dict[str, Json]]:
    """`[["JWT", jwt], {name: part, …}]` with at least one part."""
    if not isinstance(value, list) or len(value) != 2:
        raise malformed("not a detached EAT")
    overall, parts = value
    if not isinstance(overall, list) or len(overall) != 2 or overall[0] != "JWT" or not isinstance(overall[1], str):
        raise malformed("a detached EAT does not begin with its JWT")
    if not isinstance(parts, dict) or not parts:
        raise malformed("a detached EAT has no submodules")
    if any(_NAME.fullmatch(name) is None for name in parts):
        raise malformed("a submodule has a name that is not one")
    return overall[1], {name: parts[name] for name in ordered_names(parts)}


def _kind_of(shape: _Shape) -> TokenKind:
    if shape.form == "bare":
        return "jwt"
    if shape.form == "nested":
        return "nvtrust"
    overall = shape.bundles[0].overall
    if shape.form == "nvattest" or overall.algorithm == "none":
        return "nvattest"
    if overall.algorithm == "HS256":
        return "nvtrust"
    ours = COUNTERSIGN_ISSUER.match(text_claim(overall.claims, "iss") or "") is not None
    return "countersign" if ours else "nras"


def _nonces_of(bundle: Bundle) -> Iterator[str]:
    yield _required_nonce(bundle.overall.claims, "the overall JWT")
    for name, jws in bundle.submodules.items():
        yield _required_nonce(jws.claims, name)


def _overall_result(shape: _Shape) -> bool | None:
    results = [bundle.overall.claims.get(_OVERALL_RESULT) for bundle in shape.bundles]
    code = None if shape.printed is None else shape.printed.get("result_code")
    if code is not None and not (is_number(code) and code == 0):
        return False
    if any(result is not None and result is not True for result in results):
        return False
    return None if None in results else True


def _agrees(shown: JsonObject, devices: list[TokenDevice]) -> None:
    """nvattest prints the claims a second time, outside of any JWT; a copy that differs is refused."""
    if "claims" not in shown:
        return
    claims = shown["claims"]
    if not isinstance(claims, list):
        raise malformed("the printed claims are not a list")
    carried = [
        _sorted_text({name: claim for name, claim in device.claims.items() if name not in _JWT_CLAIMS})
        for device in devices
    ]
    if sorted(map(_sorted_text, claims)) != sorted(carried):
        raise malformed("the printed claims are not those of the detached EAT")


def _sorted_text(value: Json) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_sorted_text, value))}]"
    if not isinstance(value, dict):
        return stringify(value)
    return f"{{{','.join(f'{quote(name)}:{_sorted_text(value[name])}' for name in sorted(value))}}}"


_MAX_CLAIM_CHARACTERS = 1024


def _devices_of(bundle: Bundle) -> list[TokenDevice]:
    """A bare JWT may hold the claims of its one device itself."""
    if bundle.submodules:
        return [_read_device(name, bundle.verifier, jws.claims) for name, jws in bundle.submodules.items()]
    claims = bundle.overall.claims
    own = claims.get("ueid") is not None or claims.get("hwmodel") is not None or "measres" in claims
    return [_read_device("GPU-0", bundle.verifier, claims)] if own else []


def _read_device(name: str, verifier: str | None, claims: JsonObject) -> TokenDevice:
    """@raises CheckFailure: token_malformed where a claim has another type than it must."""
    vbios = text_claim(claims, "x-nvidia-gpu-vbios-version")
    return TokenDevice(
        name=name,
        verifier=verifier,
        nonce=_required_nonce(claims, name),
        driver=text_claim(claims, "x-nvidia-gpu-driver-version"),
        vbios=text_claim(claims, "x-nvidia-switch-bios-version") if vbios is None else vbios,
        ueid=text_claim(claims, "ueid"),
        hwmodel=text_claim(claims, "hwmodel"),
        measres="fail" if _opaque_data_differs(claims) else text_claim(claims, "measres"),
        secure_boot=_flag(claims, "secboot"),
        debug=text_claim(claims, "dbgstat"),
        attester_claims=_attester_claims(claims),
        claims=claims,
    )


def _opaque_data_differs(claims: JsonObject) -> bool:
    """Claims 4.0: the records of the opaque data below their reference values; None or an empty list: there is none."""
    records = claims.get("x-nvidia-mismatch-opaque-data-records")
    if records is not None and not isinstance(records, list):
        raise malformed("x-nvidia-mismatch-opaque-data-records is not a list")
    return bool(records)


def _attester_claims(claims: JsonObject) -> Mapping[str, int] | None:
    values: Any = claims.get("x-nvidia-attester-claims")
    if values is None:
        return None
    if not isinstance(values, dict):
        raise malformed("x-nvidia-attester-claims is not an object")
    numbers: dict[str, int] = {}
    for name, value in values.items():
        number = whole_number(value)
        if number is None or not 0 <= number < 2**53:
            raise malformed("x-nvidia-attester-claims has a value that is no number of 0 or more")
        numbers[name] = number
    return numbers


def _required_nonce(claims: JsonObject, label: str) -> str:
    """A part that must carry `eat_nonce` and does not is malformed: an expected claim that is absent fails."""
    nonce = text_claim(claims, "eat_nonce")
    if not nonce:
        raise malformed(f"{label} carries no eat_nonce")
    return nonce


def text_claim(claims: JsonObject, claim: str) -> str | None:
    value: Any = claims.get(claim)
    if value is not None and (not isinstance(value, str) or is_longer(value, _MAX_CLAIM_CHARACTERS)):
        raise malformed(f"{claim} is not a short string")
    return value


def _flag(claims: JsonObject, claim: str) -> bool | None:
    value: Any = claims.get(claim)
    if value is not None and not isinstance(value, bool):
        raise malformed(f"{claim} is not a boolean")
    return value

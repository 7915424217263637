"""
Verifies Intel's collateral: TCB info and the quoting enclave's identity, as the exact texts that were signed, and
revocation lists (Intel's Provisioning Certification Service, version 4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NoReturn, TypeVar, cast, get_args

from ..common.checks import CheckFailure
from ..proto.bytes import EncodingError, from_hex, is_longer, utf8
from ..proto.strict_json import JsonTextError, parse, whole_number
from ..x509 import Certificate, ChainError, Crl, DerError, ecdsa_verify_raw, parse_crl, parse_pem, verify_chain
from .cpu_options import CpuContext, TcbStatus, TdxCollateral

T = TypeVar("T")


@dataclass(frozen=True)
class ModuleSigner:
    mr_signer: bytes
    attributes: bytes
    attributes_mask: bytes


@dataclass(frozen=True)
class TcbLevel:
    status: TcbStatus
    advisories: tuple[str, ...]
    sgx: tuple[float, ...]
    tdx: tuple[float, ...]
    pce_svn: float


@dataclass(frozen=True)
class SvnLevel:
    status: TcbStatus
    advisories: tuple[str, ...]
    isv_svn: float


@dataclass(frozen=True)
class ModuleIdentity(ModuleSigner):
    id: str
    levels: tuple[SvnLevel, ...]


@dataclass(frozen=True)
class TcbInfo:
    fmspc: str
    """Hex, lowercase."""
    pce_id: str
    evaluation: float
    levels: tuple[TcbLevel, ...]
    """The highest first, as Intel sorts them."""
    module: ModuleSigner
    """The signer of modules of TDX 1.0."""
    module_identities: tuple[ModuleIdentity, ...]


@dataclass(frozen=True)
class QeIdentity:
    evaluation: float
    misc_select: bytes
    misc_select_mask: bytes
    attributes: bytes
    attributes_mask: bytes
    mr_signer: bytes
    isv_prod_id: float
    levels: tuple[SvnLevel, ...]


@dataclass(frozen=True)
class VerifiedCollateral:
    """Collateral whose signatures are right. `outdated` names what is out of its window, which the checks judge."""

    tcb_info: TcbInfo
    qe_identity: QeIdentity
    signers: tuple[Certificate, ...]
    """Signers of the two texts."""
    pck_crl: Crl
    """Not yet verified, nor is the other: the lists must be signed by the quote's own authorities."""
    root_crl: Crl
    outdated: str | None
    """What is out of its window, in words; None where all holds."""


SIGNER = "Intel SGX TCB Signing"
MAX_LEVELS = 256


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("collateral_invalid", message)


def find_collateral(carried: TdxCollateral | None, root: Certificate, context: CpuContext) -> VerifiedCollateral:
    """Takes the caller's own collateral where it is valid at the clock, else that of the evidence.

    `root`: of the quote's own chain, under which the collateral must stand too.
    @raises CheckFailure: collateral_unavailable, collateral_invalid
    """
    first: VerifiedCollateral | None = None
    for one in (context.tdx_collateral, carried):
        if one is None:
            continue
        verified = verify_collateral(one, root, context.at)
        if verified.outdated is None:
            return verified
        first = verified if first is None else first
    if first is None:
        raise CheckFailure("collateral_unavailable", "Intel's TCB info is not at hand")
    return first


def verify_collateral(collateral: TdxCollateral, root: Certificate, at: datetime) -> VerifiedCollateral:
    """@raises CheckFailure: collateral_invalid"""
    info = collateral.tcb_info, collateral.tcb_info_signature, collateral.tcb_info_issuer_chain
    identity = collateral.qe_identity, collateral.qe_identity_signature, collateral.qe_identity_issuer_chain
    tcb = _verify_text("tcb_info", *info, root, at)
    qe = _verify_text("qe_identity", *identity, root, at)
    root_crl = _read_crl("root_ca_crl", collateral.root_ca_crl)
    pck_crl = _read_crl("pck_crl", collateral.pck_crl)
    windows = (
        ("TCB info", _date(tcb.value.get("issueDate")), _date(tcb.value.get("nextUpdate"))),
        ("quoting enclave's identity", _date(qe.value.get("issueDate")), _date(qe.value.get("nextUpdate"))),
        ("root's revocation list", root_crl.this_update, root_crl.next_update),
        ("PCK authority's revocation list", pck_crl.this_update, pck_crl.next_update),
    )
    closed = next((one for one in windows if not one[1] <= at <= one[2]), None)
    window = None if closed is None else f"the {closed[0]} holds from {_iso(closed[1])} to {_iso(closed[2])}"
    return VerifiedCollateral(
        tcb_info=_read_tcb_info(tcb.value),
        qe_identity=_read_qe_identity(qe.value),
        signers=(tcb.signer, qe.signer),
        pck_crl=pck_crl,
        root_crl=root_crl,
        outdated=tcb.outdated or qe.outdated or window,
    )


def collateral_end(collateral: TdxCollateral) -> datetime:
    """
    When the first of the four parts ends. Nothing is verified. @raises CheckFailure: collateral_invalid: a part cannot
    be read.
    """
    texts = [_date(_object(_json_of(text)).get("nextUpdate")) for text in (collateral.tcb_info, collateral.qe_identity)]
    lists = {"root_ca_crl": collateral.root_ca_crl, "pck_crl": collateral.pck_crl}
    return min(*texts, *(_read_crl(name, text).next_update for name, text in lists.items()))


def _iso(date: datetime) -> str:
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class _SignedText:
    value: Mapping[str, Any]
    signer: Certificate
    outdated: str | None


def _verify_text(
    name: str, text: str, signature: str, issuer_chain: str, root: Certificate, at: datetime
) -> _SignedText:
    """The text is parsed only once its signature is found right."""
    chain = _decoded(name, lambda: parse_pem(issuer_chain))
    signer, above = chain[0], chain[1:]
    outdated = None
    try:
        verify_chain(chain, [root], at)
    except ChainError as cause:
        if cause.reason != "expired":
            raise _invalid(f"{name}: {cause}") from cause
        outdated = f"{name}: {cause}"
    is_direct = len(above) == 0 or (len(above) == 1 and above[0].spki == root.spki)
    if not is_direct or signer.is_ca or SIGNER not in signer.subject_common_name:
        raise _invalid(f"{name}: its signer is not the one that Intel's root names for it")
    if not ecdsa_verify_raw(signer, "SHA-256", _decoded(name, lambda: from_hex(signature)), utf8(text)):
        raise _invalid(f"{name}: its signature does not verify over its exact text")
    return _SignedText(_object(_json_of(text)), signer, outdated)


def _json_of(text: str) -> object:
    try:
        return parse(text)
    except JsonTextError as cause:
        raise _invalid("a signed text is not JSON") from cause


def _read_crl(name: str, text: str) -> Crl:
    return _decoded(name, lambda: parse_crl(from_hex(text)))


def _decoded(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (DerError, EncodingError) as cause:
        raise _invalid(f"{name}: {cause}") from cause


# The signed JSON. Members that are not known are Intel's to add; those that are used must be of their kind.


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _invalid("a signed text lacks an object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_LEVELS:
        raise _invalid("a signed text has a list that is none, or long")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or is_longer(value, 256):
        raise _invalid("a signed text lacks a string")
    return value


def _whole(value: object) -> float:
    number = whole_number(value)
    if number is None or number < 0:
        raise _invalid("a signed text lacks a number")
    return number


def _bytes(value: object, length: int) -> bytes:
    read = _decoded("a signed text", lambda: from_hex(_text(value)))
    if len(read) != length:
        raise _invalid("a signed text has a value of another size")
    return read


TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


def _date(value: object) -> datetime:
    """As ECMAScript has it: the hour 24 and the days up to 31 of any month are of the day, or the month, behind it."""

    def none() -> NoReturn:
        raise _invalid("a signed text has a time that is none")

    match = TIME.fullmatch(_text(value))
    if match is None:
        none()
    year, month, day, hour, minute, second = map(int, match.groups())
    is_time = (hour < 24 and minute < 60 and second < 60) or (hour, minute, second) == (24, 0, 0)
    if not (1 <= month <= 12 and 1 <= day <= 31 and is_time):
        none()
    since = timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)
    try:
        return datetime(year, month, 1, tzinfo=timezone.utc) + since
    except (ValueError, OverflowError):
        return (datetime.min if year == 0 else datetime.max).replace(tzinfo=timezone.utc)


def _is(json: Mapping[str, Any], name: str, version: int) -> None:
    if json.get("id") != name or whole_number(json.get("version")) != version:
        raise _invalid(f"a signed text is not {name} of version {version}")


def _read_tcb_info(json: Mapping[str, Any]) -> TcbInfo:
    _is(json, "TDX", 3)
    identities = [_object(one) for one in _list(json["tdxModuleIdentities"])] if "tdxModuleIdentities" in json else []
    return TcbInfo(
        fmspc=_text(json.get("fmspc")).lower(),
        pce_id=_text(json.get("pceId")).lower(),
        evaluation=_whole(json.get("tcbEvaluationDataNumber")),
        levels=tuple(_tcb_level(_object(level)) for level in _list(json.get("tcbLevels"))),
        module=ModuleSigner(**_signer(_object(json.get("tdxModule")))),
        module_identities=tuple(
            ModuleIdentity(**_signer(one), id=_text(one.get("id")).upper(), levels=_svn_levels(one.get("tcbLevels")))
            for one in identities
        ),
    )


def _tcb_level(level: Mapping[str, Any]) -> TcbLevel:
    tcb = _object(level.get("tcb"))
    status, advisories = _status_of(level)
    sgx, tdx = _components(tcb.get("sgxtcbcomponents")), _components(tcb.get("tdxtcbcomponents"))
    return TcbLevel(status, advisories, sgx, tdx, _whole(tcb.get("pcesvn")))


def _read_qe_identity(json: Mapping[str, Any]) -> QeIdentity:
    _is(json, "TD_QE", 2)
    return QeIdentity(
        evaluation=_whole(json.get("tcbEvaluationDataNumber")),
        # Written most significant digit first; the report has the least significant byte first.
        misc_select=_bytes(json.get("miscselect"), 4)[::-1],
        misc_select_mask=_bytes(json.get("miscselectMask"), 4)[::-1],
        attributes=_bytes(json.get("attributes"), 16),
        attributes_mask=_bytes(json.get("attributesMask"), 16),
        mr_signer=_bytes(json.get("mrsigner"), 32),
        isv_prod_id=_whole(json.get("isvprodid")),
        levels=_svn_levels(json.get("tcbLevels")),
    )


def _signer(json: Mapping[str, Any]) -> dict[str, bytes]:
    return {
        "mr_signer": _bytes(json.get("mrsigner"), 48),
        "attributes": _bytes(json.get("attributes"), 8),
        "attributes_mask": _bytes(json.get("attributesMask"), 8),
    }


def _svn_levels(value: object) -> tuple[SvnLevel, ...]:
    levels = [_object(level) for level in _list(value)]
    return tuple(SvnLevel(*_status_of(one), _whole(_object(one.get("tcb")).get("isvsvn"))) for one in levels)


STATUSES = get_args(TcbStatus)


def _status_of(level: Mapping[str, Any]) -> tuple[TcbStatus, tuple[str, ...]]:
    status = level.get("tcbStatus")
    if not isinstance(status, str) or status not in STATUSES:
        raise _invalid("a signed text has a status that is not known")
    advisories = tuple(_text(one) for one in _list(level["advisoryIDs"])) if "advisoryIDs" in level else ()
    return cast(TcbStatus, status), advisories


def _components(value: object) -> tuple[float, ...]:
    svns = tuple(_whole(_object(component).get("svn")) for component in _list(value))
    if len(svns) != 16:
        raise _invalid("a level has not 16 components")
    return svns

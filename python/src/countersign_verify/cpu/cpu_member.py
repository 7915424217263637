"""
Reads a processor's evidence as it travels, the member `cpu`: strictly, and with a limit on every size. Only the form
is judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast, get_args

from ..common.checks import CheckFailure
from ..proto.bytes import EncodingError, from_base64, from_utf8, is_longer
from ..proto.strict_json import JsonTextError, duplicate_member, parse
from ..x509 import Certificate, DerError, parse_pem
from .cpu_options import CpuType, TdxCollateral
from .evidence.azure_vtpm import TpmQuote


@dataclass(frozen=True)
class CpuMember:
    type: CpuType
    report: bytes
    """SNP: the report. TDX: the quote. Azure: the HCL report, in which it stands."""
    certificates: Sequence[Certificate]
    """Leaf, then ASK or ASVK; of SEV-SNP alone."""
    crl: bytes | None
    """DER; of SEV-SNP alone."""
    collateral: TdxCollateral | None
    quote: bytes | None
    """Azure TDX: the quote, which stands beside its HCL report."""
    tpm: TpmQuote | None
    event_log: bytes | None
    """TDX: CCEL, or JSON of dstack's form."""


MAX_CHARACTERS = 8 * 1024 * 1024
# The longest text of each member, in UTF-16 code units.
MAX = {
    "report": 64 * 1024,
    "certificates": 64 * 1024,
    "quote": 64 * 1024,
    "tpm": 16 * 1024,
    "event_log": 2 * 1024 * 1024,
    "text": 512 * 1024,
    "crl": 2 * 1024 * 1024,
}
TPM_PCRS = 24

# The members of each type beside `type` and `report`: required ones, and optional ones.
MEMBERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "SEV_SNP": (("certificates",), ("collateral",)),
    "TDX": ((), ("collateral", "event_log")),
    "AZURE_SEV_SNP": (("certificates", "tpm"), ("collateral",)),
    "AZURE_TDX": (("quote", "tpm"), ("collateral", "event_log")),
}
# Members of the session, which binding.py reads.
OF_THE_SESSION = ("statement", "gpu_sha256", "gpu", "launch", "signature")
# dcap-qvl writes it from 0.3.11 on, as text or null.
PCK_CHAIN = "pck_certificate_chain"
COLLATERAL = tuple(field.name for field in fields(TdxCollateral) if field.name != PCK_CHAIN)
HEX_32 = re.compile(r"[0-9a-f]{64}")


def bad(message: str) -> CheckFailure:
    return CheckFailure("cpu_malformed", message)


def read_cpu_member(value: object) -> CpuMember:
    """`value`: the member `cpu`, as JSON text or parsed. @raises CheckFailure: cpu_malformed, cpu_unsupported"""
    member = record(parse_cpu(value) if isinstance(value, str) else value, "the evidence")
    kind = member.get("type")
    if not isinstance(kind, str):
        raise bad("the evidence does not say of what type it is")
    if kind not in get_args(CpuType):
        raise CheckFailure("cpu_unsupported", "evidence of a type that is not known: nothing is checked by halves")
    must, may = MEMBERS[kind]
    _only(member, ("type", "report", *must, *may, *OF_THE_SESSION), ("report", *must))
    is_amd = kind.endswith("SEV_SNP")
    return CpuMember(
        type=cast(CpuType, kind),
        report=_base64(member["report"], "report", MAX["report"]),
        certificates=_pem(member["certificates"]) if is_amd else (),
        crl=_read_crl(member["collateral"]) if is_amd and "collateral" in member else None,
        collateral=read_tdx_collateral(member["collateral"]) if not is_amd and "collateral" in member else None,
        quote=_base64(member["quote"], "quote", MAX["quote"]) if "quote" in member else None,
        tpm=_read_tpm(member["tpm"]) if "tpm" in member else None,
        event_log=_base64(member["event_log"], "event_log", MAX["event_log"]) if "event_log" in member else None,
    )


def parse_cpu(text: str) -> object:
    """@raises CheckFailure: cpu_malformed"""
    if is_longer(text, MAX_CHARACTERS):
        raise bad(f"more than {MAX_CHARACTERS} characters")
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise bad("the evidence is not JSON") from cause
    if duplicate_member(text) is not None:
        raise bad("a member appears twice")
    return value


def record(value: object, what: str) -> Mapping[str, Any]:
    """@raises CheckFailure: cpu_malformed"""
    if not isinstance(value, dict):
        raise bad(f"{what} is not an object")
    return value


def _only(value: Mapping[str, Any], may: Sequence[str], must: Sequence[str]) -> None:
    if any(name not in may for name in value):
        raise bad(f"a member other than {', '.join(may[:9])}")
    missing = next((name for name in must if name not in value), None)
    if missing is not None:
        raise bad(f"the member {missing} is absent")


def _string(value: object, name: str, most: int) -> str:
    if not isinstance(value, str):
        raise bad(f"{name} is not a string")
    if is_longer(value, most):
        raise bad(f"{name} has more than {most} characters")
    return value


def _base64(value: object, name: str, most: int) -> bytes:
    try:
        return from_base64(_string(value, name, most))
    except EncodingError as cause:
        raise bad(f"{name} is not base64") from cause


def _pem(value: object) -> Sequence[Certificate]:
    try:
        return parse_pem(from_utf8(_base64(value, "certificates", MAX["certificates"])))
    except (DerError, EncodingError) as cause:
        raise bad(f"certificates: {cause}") from cause


def _read_crl(value: object) -> bytes:
    collateral = record(value, "collateral")
    _only(collateral, ("crl",), ("crl",))
    return _base64(collateral["crl"], "crl", MAX["crl"])


def read_tdx_collateral(value: object) -> TdxCollateral:
    """@raises CheckFailure: cpu_malformed"""
    collateral = record(value, "collateral")
    _only(collateral, (*COLLATERAL, PCK_CHAIN), COLLATERAL)
    chain = collateral.get(PCK_CHAIN)
    if chain is not None:
        _string(chain, PCK_CHAIN, MAX["text"])
    sizes = {name: MAX["crl"] if name.endswith("crl") else MAX["text"] for name in COLLATERAL}
    texts = {name: _string(collateral[name], name, sizes[name]) for name in COLLATERAL}
    return TdxCollateral(**texts, pck_certificate_chain=chain)


def _read_tpm(value: object) -> TpmQuote:
    tpm = record(value, "tpm")
    _only(tpm, ("message", "signature", "pcrs"), ("message", "signature", "pcrs"))
    pcrs = tpm["pcrs"]
    if not isinstance(pcrs, list) or len(pcrs) != TPM_PCRS:
        raise bad(f"pcrs is not a list of {TPM_PCRS}")
    message, signature = (_base64(tpm[name], name, MAX["tpm"]) for name in ("message", "signature"))
    if not all(isinstance(pcr, str) and HEX_32.fullmatch(pcr) for pcr in pcrs):
        raise bad("a PCR is not 64 lowercase hex digits")
    return TpmQuote(message, signature, [bytes.fromhex(pcr) for pcr in pcrs])

"""The report for people: a line a check, what was found, what it proves and what it does not, and what to do next."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from .checks import UNAVAILABLE, Check
from .cpu.options import CpuClaims, CpuSoftware
from .options import Claims, VerificationReport
from .verdict import age_in_words

_MARKS: Final = {"pass": "pass", "fail": "FAIL", "skip": "skip"}
_COLOURS: Final = {"pass": "32", "fail": "31", "skip": "33", "valid": "1;32", "invalid": "1;31", "incomplete": "1;33"}


def plain(text: str) -> str:
    """Replaces control characters in texts of others (an issuer, a file's name), which could clear the screen or write lines of this report."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(one) in _CONTROLS else one for one in text)


_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True)
class Verdict:
    word: str
    """``valid``, ``invalid`` or ``incomplete``."""
    text: str
    code: str | None


def verdict_of(checks: Sequence[Check], valid: bool, words: str) -> Verdict:
    """``words``: what is said where every check passes."""
    if valid:
        return Verdict("valid", words, None)
    failed = [check.code for check in checks if check.status == "fail"]
    code = failed[0] if failed else None
    if failed and all(one in UNAVAILABLE for one in failed):
        return Verdict("incomplete", f"INCOMPLETE: {code}", code)
    return Verdict("invalid", f"INVALID: {code or 'no check could run'}", code)


class Printer:
    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def report(self, report: VerificationReport, verdict: Verdict, at: datetime) -> str:
        """:param at: the time of the check."""
        lines = [*self._checks(report.checks), "", *_plain(_claims(report.claims, at))]
        lines += _listed("proven", "+", report.proven) + _listed("not proven", "-", report.not_proven)
        return "\n".join([*lines, "", self.verdict(verdict)])

    def cpu_report(self, checks: Sequence[Check], claims: CpuClaims | None, verdict: Verdict) -> str:
        lines = [*self._checks(checks), "", *_plain(["claims: none"] if claims is None else _cpu_claims(claims))]
        if claims is None or claims.software is None:
            lines += _listed(
                "not proven", "-", ["which software ran: the measurement was not compared with any, or is another"]
            )
        return "\n".join([*lines, "", self.verdict(verdict)])

    def verdict(self, verdict: Verdict) -> str:
        return self._paint(plain(verdict.text), verdict.word)

    def _checks(self, checks: Sequence[Check]) -> list[str]:
        names = [check.name if check.device is None else f"{check.name}[{check.device}]" for check in checks]
        width = max(map(len, names), default=0)
        lines = []
        for name, check in zip(names, checks, strict=True):
            detail = check.detail if check.code is None else f"{check.code}: {check.detail}"
            lines.append(f"  {self._paint(_MARKS[check.status], check.status)}  {name.ljust(width)}  {plain(detail)}")
        return lines

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colours else text


def _plain(lines: Iterable[str]) -> list[str]:
    return [plain(line) for line in lines]


def _listed(title: str, mark: str, statements: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {mark} {plain(text)}" for text in statements)] if statements else []


def _claims(claims: Claims, at: datetime) -> list[str]:
    out = ["claims"]
    if claims.simulated:
        out.append("  SIMULATED: no GPU made this")
    if claims.time is not None:
        out.append(f"  time      {claims.time}, {age_in_words(claims.time, at)} (by the gateway's clock)")
    if claims.nonce is not None:
        out.append(f"  nonce     {claims.nonce}")
    if claims.batch is not None:
        out.append(f"  batch     leaf {claims.batch.leaf_index} of the {claims.batch.tree_size} under this nonce")
    if claims.token is not None:
        signature = claims.token.signature or "not checked"
        out.append(f"  token     {claims.token.kind}, {signature}, says it is from '{claims.token.issuer}'")
    for i, device in enumerate(claims.devices):
        facts = [
            None if device.driver is None else f"driver {device.driver}",
            None if device.vbios is None else f"VBIOS {device.vbios}",
            None if device.mode is None else f"mode {device.mode}",
            None if device.measurements_matched is None else f"{device.measurements_matched} measurements match",
        ]
        out.append(f"  device {i}  {', '.join([device.model, *(fact for fact in facts if fact is not None)])}")
        out.append(f"            ueid {device.ueid}")
    if claims.cpu is not None:
        out.append(f"  processor {_processor(claims.cpu)}{', simulated' if claims.cpu.simulated else ''}")
        out.append(f"            launch measurement {claims.cpu.measurement}")
        if claims.cpu.software is not None:
            out.append(f"            software {_software(claims.cpu.software)}")
    return ["claims: none"] if len(out) == 1 else out


def _cpu_claims(claims: CpuClaims) -> list[str]:
    out = ["claims", f"  type         {_processor(claims)}"]
    if claims.simulated:
        out.append("  SIMULATED: no processor made this")
    facts = (
        ("measurement", claims.measurement),
        ("report data", claims.report_data),
        ("host data", claims.host_data),
        ("VMPL", claims.vmpl),
        ("TCB status", claims.tcb_status),
        ("chip", claims.chip_id),
    )
    out += [f"  {name.ljust(11)}  {value}" for name, value in facts if value is not None]
    if claims.software is not None:
        out.append(f"  software     {_software(claims.software)}")
    if claims.advisories:
        out.append(f"  advisories   {', '.join(claims.advisories)}")
    return out


def _software(software: CpuSoftware) -> str:
    images = "" if software.images is None else f": {', '.join(software.images)}"
    return f"of launch file {software.launch}{images}"


def _processor(claims: CpuClaims) -> str:
    return claims.type if claims.product is None else f"{claims.type}, {claims.product}"


# What to do next, by the code of the first check that failed.

_NEXT: Final = {
    "not_json": "the file is not JSON and no event stream: save the answer as it came, byte for byte",
    "not_an_attestation": 'ask for an attestation with "tee": true in the request, and save the whole answer',
    "request_mismatch": "give --request the body exactly as it was sent, its member tee included",
    "response_mismatch": "compare with the answer as it came: another program may have changed it on its way",
    "event_not_expected": "one event of a stream by itself shows only a part of the answer: give the whole stream, or say --event",
    "unsigned_member": "give the answer as it came, with its attestation in it, or the attestation alone",
    "stream_mismatch": "compare with the stream as it came: another program may have changed it on its way",
    "simulated_root_refused": "the device is simulated and proves nothing about hardware; to accept it under a test root that you "
    "name, give --allow-simulated ROOT (npm start writes run/simulated-root/root.pem)",
    "token_key_unavailable": "NVIDIA's keys for the token could not be had: check the network, or HTTPS_PROXY",
    "collateral_unavailable": "the evidence has no collateral of its maker: whoever runs the service has to add it (PCS_URL, KDS_URL)",
    "too_old": "to check it as of the time when you received it, give --at TIME",
    "token_expired": "to check it as of the time when you received it, give --at TIME",
    "certificate_expired": "to check it as of the time when you received it, give --at TIME",
    "revocation_invalid": "to check it as of the time when you received it, give --at TIME and what was kept then: --collateral DIR",
    "cpu_missing": "where the attestation names a session, give it with --session FILE (GET /v1/attestation/session)",
    "tcb_not_accepted": "the platform's firmware is behind; to accept a status of Intel's, give --tcb STATUS",
}

_SERVICES: Final = {
    "revocation_unavailable": ("whether certificates were revoked", "--without-revocation"),
    "rim_unavailable": ("NVIDIA's reference values", "--without-reference-values"),
}
_OF_TIME: Final = {
    "certificate_expired",
    "revocation_invalid",
    "too_old",
    "token_expired",
    "policy_refused",
    "session_expired",
}
_YEAR_SECONDS: Final = 365 * 86_400


def next_step(code: str | None, *, offline: bool, claimed: datetime | None, now: datetime | None) -> str | None:
    """:param claimed: the time that the attestation names. :param now: this machine's; None where the caller named another."""
    if code is None:
        return None
    if code in _OF_TIME and claimed is not None and now is not None and _years_apart(claimed, now):
        return (
            f"the attestation is of {claimed:%Y-%m-%d} and this machine's clock says {now:%Y-%m-%d}: set the clock if it is wrong, "
            "or give --at TIME"
        )
    if code in _SERVICES:
        what, without = _SERVICES[code]
        if offline:
            return (
                f"to ask for {what}, leave out --offline, or give --collateral DIR that 'countersign collateral FILE --into DIR' "
                f"filled; {without} leaves this check out"
            )
        return f"{what} could not be asked for: check the network, or HTTPS_PROXY, and try again; {without} leaves this check out"
    return _NEXT.get(code)


def _years_apart(one: datetime, other: datetime) -> bool:
    return abs((one - other).total_seconds()) > _YEAR_SECONDS

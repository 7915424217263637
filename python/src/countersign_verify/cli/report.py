"""The report for people: what was found in about ten lines, or every check with all statements, and a verdict with what to do next."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ..common.checks import UNAVAILABLE, Check
from ..common.release_options import ReleaseClaims
from ..cpu.cpu_options import CpuClaims, CpuSoftware
from ..policy.options import Claims, VerificationReport
from ..policy.release_words import release_sentence
from ..policy.verdict import age_in_words
from .kinds import FileKind, is_answer
from .stranger import Stranger
from .words import refused_words

_MARKS: Final = {"pass": "pass", "fail": "FAIL", "skip": "skip"}
_MAX_FAILED: Final = 4
"""More failures than these are counted in the short report."""
_WIDTH: Final = 9
_LEVEL_WORDS: Final = {
    "none": "none: nothing about hardware is proven",
    "gpu": "gpu: a genuine GPU signed, at the asking of software on its host",
    "gpu+cpu": "gpu+cpu: a genuine GPU and its machine's processor signed",
    "measured": "measured: GPU and processor signed, and the software is on your list",
}
_RED, _GREEN, _AMBER, _DIM = ("31", "39"), ("32", "39"), ("33", "39"), ("2", "22")
_STYLES: Final = (
    (re.compile(r"  FAIL"), _RED),
    (re.compile(r"  pass"), _GREEN),
    (re.compile(r"  skip"), _DIM),
    (re.compile(r"(?:VALID|PASSED).*\((?:level: none|simulated)\)$"), _AMBER),
    (re.compile(r"(?:VALID|PASSED).*"), _GREEN),
    (re.compile(r"INVALID"), _RED),
    (re.compile(r"INCOMPLETE"), _AMBER),
)
"""The first that fits a line colours it: amber for what proves no hardware."""
_SIMULATED: Final = re.compile(r"^  SIMULATED|\(SIMULATED: [^)]*\)$")


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
    failed: Check | None
    """The check that failed first."""


def verdict_of(checks: Sequence[Check], valid: bool, words: str, about: Stranger | None) -> Verdict:
    """:param words: what is said where every check passes. :param about: what the file is, where it is none that can be checked."""
    if valid:
        return Verdict("valid", words, None)
    failed = [check for check in checks if check.status == "fail"]
    text = refused_words(checks, None if about is None else about.sentence)
    incomplete = len(failed) > 0 and all(check.code in UNAVAILABLE for check in failed)
    return Verdict("incomplete" if incomplete else "invalid", text, failed[0] if failed else None)


@dataclass(frozen=True)
class Printing:
    verbose: bool
    colours: bool
    at: datetime
    """The time of the check."""
    about: Stranger | None
    """What the file is, where it is none that can be checked."""


_Facts = Sequence[tuple[str, str]]


def report_text(
    report: VerificationReport, kind: FileKind, verdict: Verdict, step: str | None, printing: Printing
) -> str:
    if not printing.verbose:
        lines = _short(report.checks, report.valid, _facts(report, kind, printing.at), printing)
        return _written(lines, verdict, step, printing)
    lines = [*_check_lines(report.checks), "", *_claims(report.claims, printing.at)]
    lines += _listed("proven", "+", report.proven) + _listed("not proven", "-", report.not_proven)
    return _written(lines, verdict, step, printing)


def cpu_report_text(
    checks: Sequence[Check], claims: CpuClaims | None, verdict: Verdict, step: str | None, printing: Printing
) -> str:
    """The same for a processor's evidence, which has no level of its own."""
    if not printing.verbose:
        return _written(_short(checks, verdict.word == "valid", _cpu_facts(claims), printing), verdict, step, printing)
    lines = [*_check_lines(checks), "", *(["claims: none"] if claims is None else _cpu_claims(claims))]
    if claims is None or claims.software is None:
        open_ = "which software ran: the measurement was not compared with any, or is another"
        lines += _listed("not proven", "-", [open_])
    return _written(lines, verdict, step, printing)


def _written(lines: Sequence[str], verdict: Verdict, step: str | None, printing: Printing) -> str:
    gap = [""] if printing.verbose or printing.about is None else []
    next_lines = [] if step is None else [f"next: {step}"]
    text = [plain(line) for line in (*lines, *gap, verdict.text, *next_lines)]
    return "\n".join(map(styled, text) if printing.colours else text)


def styled(line: str) -> str:
    for pattern, (begin, end) in _STYLES:
        found = pattern.match(line)
        if found is not None:
            return f"\x1b[{begin}m{found.group()}\x1b[{end}m{line[found.end() :]}"
    return _SIMULATED.sub(lambda found: f"\x1b[33m{found.group()}\x1b[39m", line)


def _short(checks: Sequence[Check], valid: bool, facts: _Facts, printing: Printing) -> list[str]:
    """Where the file is none that can be checked, the verdict says all."""
    if printing.about is not None:
        return []
    lines = [f"  {name.ljust(_WIDTH)}  {words}" for name, words in facts]
    if valid:
        return [*lines, f"  {'checks'.ljust(_WIDTH)}  {_counted(checks)}; --verbose lists them"]
    failed = _check_lines([check for check in checks if check.status == "fail"])
    more = len(failed) - _MAX_FAILED
    claimed = ["claimed, not proven", *lines, ""] if lines else []
    counted = [f"        {more} more; --verbose lists them"] if more > 0 else []
    return [*claimed, *failed[:_MAX_FAILED], *counted]


def _counted(checks: Sequence[Check]) -> str:
    passed = sum(check.status == "pass" for check in checks)
    return f"{passed} passed, {len(checks) - passed} skipped"


def _facts(report: VerificationReport, kind: FileKind, at: datetime) -> _Facts:
    """Who signed what, with which software, when."""
    claims = report.claims
    if not claims.devices and claims.cpu is None and claims.token is None:
        return []
    shown = _release_shown(claims)
    facts = [
        ("signed by", _signers(claims)),
        ("signed", _signed(claims, kind, report.checks)),
        ("software", shown or _known_software(claims.cpu)),
        *_weights(claims.cpu),
    ]
    if claims.release is not None:
        facts.append(("status", _status(claims.release)))
    if claims.time is not None:
        facts.append(("time", f"{claims.time}, {age_in_words(claims.time, at)} (by the gateway's clock)"))
    if report.valid:
        by_release = shown is not None and report.level == "measured"
        facts.append(("level", f"measured: {shown}" if by_release else _LEVEL_WORDS[report.level]))
    return facts


def _release_shown(claims: Claims) -> str | None:
    """The release whose list the guest is on, in words; None where there is none."""
    software, release = None if claims.cpu is None else claims.cpu.software, claims.release
    if software is None or release is None or software.release != release.statement_sha256:
        return None
    return release_sentence(release, software.launch)


def _status(release: ReleaseClaims) -> str:
    """What is known of its standing."""
    status = release.status
    if status is None:
        return "not to be relied on"
    if status.state == "absent":
        return "absent: nobody shows whether the release was withdrawn"
    is_current = status.current == release.tag
    now = "the current release" if is_current else f"not the current release, which is {status.current}"
    withdrawn = "" if status.withdrawn_later is None else f"; WITHDRAWN later: {status.withdrawn_later}"
    return f"{status.state}, of {status.time}: {now}{withdrawn}"


def _signers(claims: Claims) -> str:
    devices, token = claims.devices, claims.token
    models = ", ".join(dict.fromkeys(device.model for device in devices))
    signers = []
    if devices:
        signers.append(models if len(devices) == 1 else f"{len(devices)} devices ({models})")
    elif token is not None:
        signers.append(f"no device is shown; a token says it is from '{token.issuer}'")
    if claims.cpu is not None:
        signers.append(f"processor {_processor(claims.cpu)}")
    return f"{'; '.join(signers)}{' (SIMULATED: no GPU made this)' if claims.simulated else ''}"


def _signed(claims: Claims, kind: FileKind, checks: Sequence[Check]) -> str:
    if not is_answer(kind):
        return "a session, about no answer" if kind == "session" else f"the nonce {claims.nonce or 'of each device'}"
    compared = next(check for check in checks if check.name == "expected_exchange")
    batch = claims.batch
    of = "" if batch is None or batch.tree_size == 1 else f", one of {batch.tree_size} answers under one nonce"
    return f"a request and its answer{of}{'' if compared.status == 'fail' else f': {compared.detail}'}"


def _known_software(cpu: CpuClaims | None) -> str:
    if cpu is None:
        return "not shown: no processor signed"
    return "not known: the measurement was compared with no list" if cpu.software is None else _software(cpu.software)


def _weights(cpu: CpuClaims | None) -> _Facts:
    model = None if cpu is None or cpu.software is None else cpu.software.model
    return [] if model is None else [("weights", f"{model.name}, root {model.verity_root}")]


def _cpu_facts(claims: CpuClaims | None) -> _Facts:
    if claims is None:
        return []
    simulated = " (SIMULATED: no processor made this)" if claims.simulated else ""
    return [
        ("signed by", f"processor {_processor(claims)}{simulated}"),
        ("signed", f"the report data {claims.report_data}"),
        ("software", _known_software(claims)),
        *([] if claims.tcb_status is None else [("TCB", claims.tcb_status)]),
    ]


def _check_lines(checks: Sequence[Check]) -> list[str]:
    names = [check.name if check.device is None else f"{check.name}[{check.device}]" for check in checks]
    width = max(map(len, names), default=0)
    lines = []
    for name, check in zip(names, checks, strict=True):
        detail = check.detail if check.code is None else f"{check.code}: {check.detail}"
        lines.append(f"  {_MARKS[check.status]}  {name.ljust(width)}  {detail}")
    return lines


def _listed(title: str, mark: str, statements: Iterable[str]) -> list[str]:
    listed = [f"  {mark} {text}" for text in statements]
    return ["", title, *listed] if listed else []


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
        out += [f"            {name} {words}" for name, words in _weights(claims.cpu)]
        if claims.release is not None:
            named = f"{claims.release.tag} of {claims.release.repository}"
            out.append(f"  release   {named}, status {_status(claims.release)}")
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

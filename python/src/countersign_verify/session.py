"""Verifies a session by itself: the statement that devices and processor both signed, before any answer or for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .binding.input import read_session_evidence
from .common.checks import CheckFailure, CheckList, Passed, VerificationError, passed
from .cpu.binding import Answer, CpuForm, ExpectedSession, check_cpu, read_session
from .cpu.cpu_member import parse_cpu
from .cpu.cpu_options import CpuOptions, CpuRoots, CpuVerifyOptions, CpuWithout, VerifiedSession
from .cpu.verify_cpu import read_cpu_options
from .gpu.device_evidence import input_of
from .gpu.devices import verify_devices
from .policy.options import OptionFields, VerificationReport, VerifyOptions, read_options
from .policy.verdict import Findings, check_policy, concluded
from .proto.attestation.attestation import Evidence
from .proto.bytes import utf8
from .release_named import check_named_release

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class SessionReport(VerificationReport):
    session: VerifiedSession | None
    """For the option `session` of later verifications; None unless valid."""


@dataclass(frozen=True)
class VerifiedSessionReport(SessionReport):
    session: VerifiedSession
    """For the option `session` of later verifications."""


def verify_session(value: object, **options: Unpack[OptionFields]) -> VerifiedSessionReport:
    """
    Verifies what `GET /v1/attestation/session` returns: that genuine devices and a genuine processor signed one
    statement, with the key that signs answers.

    ```python
    session = verify_session(text, expected=Expected(challenge=challenge)).session
    verified = verify_attestation(response, session=session)
    ```

    `value`: its JSON text, or parsed.
    @raises VerificationError with the list of checks. @raises TypeError for options that cannot be used.
    """
    report = appraise_session(value, **options)
    if report.session is None:
        raise VerificationError(report.checks)
    return VerifiedSessionReport(**{one.name: getattr(report, one.name) for one in fields(report)})


def appraise_session(value: object, **options: Unpack[OptionFields]) -> SessionReport:
    """As `verify_session`, but a failed check is in what is returned."""
    given_options = VerifyOptions(**options)
    context = read_options(given_options)
    cpu = CpuOptions() if given_options.cpu is None else given_options.cpu
    cpu_context = read_cpu_options(
        CpuVerifyOptions(
            at=context.at,
            roots=cpu.roots,
            simulated_roots=given_options.simulated_root,
            collateral=cpu.collateral,
            without=CpuWithout(revocation=given_options.without.revocation),
            policy=cpu.policy,
            reference=cpu.reference,
            weights=cpu.weights,
        )
    )
    checks = CheckList(given_options.stop_at_failure)
    release = check_named_release(checks, context, None)
    if release is not None:
        cpu_context = replace(cpu_context, reference=release.reference, release=release.claims)
    given = checks.run("form", [], lambda: _form_of(value))
    nonce = None if given is None else sha256(utf8(given.statement)).hexdigest()
    evidence = () if given is None else given.gpu
    inputs = [input_of(one) for one in evidence]
    devices = verify_devices(checks, inputs, nonce, (), context)
    member = None if given is None else given.member
    form = checks.run("cpu_form", ["form"], lambda: _of_all_listed(read_session(member, evidence), len(evidence)))
    expected = ExpectedSession(session=None, challenge=given_options.expected.challenge, at=context.at)
    answer = Answer(raw_hash=None, timestamp=None, evidence=evidence)
    findings = Findings(
        list=checks,
        devices=devices,
        token=None,
        appraised=(),
        nonce=nonce,
        batch=None,
        timestamp=None,
        cpu=check_cpu(checks, form, answer, expected, cpu_context),
        release=None if release is None else release.claims,
        about="session",
        nvidia=context.nvidia,
        own_cpu_roots=cpu.roots != CpuRoots(),
        challenged=expected.challenge is not None,
    )
    checks.run("policy", ["form"], lambda: check_policy(findings, context))
    report = concluded(findings)
    session = None
    if report.valid and given is not None and findings.cpu is not None:
        session = VerifiedSession(given.statement, findings.cpu)
    return SessionReport(**{one.name: getattr(report, one.name) for one in fields(report)}, session=session)


def _of_all_listed(form: Passed[CpuForm], signed: int) -> Passed[CpuForm]:
    """
    Every device that the statement lists must have signed it: cpu_devices checks that no other did, and report_form
    that none did twice.
    @raises CheckFailure: cpu_devices_mismatch
    """
    listed = len(form.value.session.statement.devices)
    if listed > signed:
        raise CheckFailure("cpu_devices_mismatch", f"the statement lists {listed} devices, and {signed} signed it")
    return form


@dataclass(frozen=True)
class _Given:
    member: Mapping[str, Any]
    statement: str
    gpu: Sequence[Evidence]


def _form_of(value: object) -> Passed[_Given]:
    """@raises CheckFailure: not_an_attestation, cpu_malformed"""
    member = parse_cpu(value) if isinstance(value, str) else value
    if not isinstance(member, dict):
        raise CheckFailure("not_an_attestation", "a session is an object")
    statement = member.get("statement")
    if not isinstance(statement, str):
        raise CheckFailure("not_an_attestation", "the session has no statement")
    evidence = read_session_evidence(member.get("gpu"))
    count = "1 device" if len(evidence) == 1 else f"{len(evidence)} devices"
    return passed(f"a session with evidence of {count}", _Given(member, statement, evidence))

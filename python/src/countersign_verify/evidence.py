"""Verifies the evidence of one or many devices: every one must pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .binding.input import read_devices
from .common.checks import CheckFailure, CheckList, Limits, Passed, VerificationError, passed
from .gpu.device_evidence import DeviceInput
from .gpu.devices import verify_devices
from .policy.options import OptionFields, VerificationReport, VerifyOptions, read_options
from .policy.verdict import Findings, check_policy, concluded

if TYPE_CHECKING:
    from typing_extensions import Unpack


def verify_evidence(value: Any, **options: Unpack[OptionFields]) -> VerificationReport:
    """
    Verifies bare evidence: that each device signed the nonce stated beside it, and that each is what its certificates
    and reference values say.

        report = verify_evidence(open("evidence.json").read(), collateral=collateral)

    `value`: a list in NVIDIA's form, `[{arch, certificate, evidence, nonce}]` (base64, base64, hex), as JSON text or
    parsed; `arch` is HOPPER, BLACKWELL or LS10. `expected.nonce` stands in where none is stated, and must be the one
    that is. The options are those of VerifyOptions.
    @raises VerificationError with the list of checks. @raises TypeError for options that cannot be used.
    """
    report = appraise_evidence(value, **options)
    if not report.valid:
        raise VerificationError(report.checks)
    return report


def appraise_evidence(value: Any, **options: Unpack[OptionFields]) -> VerificationReport:
    """As `verify_evidence`, but a failed check is in what is returned."""
    given = VerifyOptions(**options)
    if given.release is not None:
        raise TypeError("release is for answers and sessions, which show a guest")
    context = read_options(given)
    checks = CheckList(given.stop_at_failure)
    nonce = None if given.expected.nonce is None else given.expected.nonce.lower()
    inputs = checks.run("form", [], lambda: _check_form(value, nonce, given.limits)) or []
    devices = verify_devices(checks, inputs, nonce, (), context)
    stated = {nonce if one.nonce is None else one.nonce for one in inputs}
    findings = Findings(
        list=checks,
        devices=devices,
        token=None,
        appraised=(),
        nonce=stated.pop() if len(stated) == 1 else None,
        batch=None,
        timestamp=None,
        cpu=None,
        about="nonce",
        nvidia=context.nvidia,
        own_cpu_roots=False,
    )
    checks.run("policy", ["form"], lambda: check_policy(findings, context))
    return concluded(findings)


def _check_form(value: Any, nonce: str | None, limits: Limits) -> Passed[Sequence[DeviceInput]]:
    devices = read_devices(value, limits)
    if nonce is not None and any(device.nonce not in (None, nonce) for device in devices):
        raise CheckFailure("report_nonce_mismatch", "the evidence states another nonce than the one that is expected")
    return passed(f"evidence of {len(devices)} {'device' if len(devices) == 1 else 'devices'}", devices)

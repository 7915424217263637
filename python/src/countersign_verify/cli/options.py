"""From the command line to the verifier's options, and the check of one file by them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ..attestation import appraise_attestation
from ..common.bounded_json import unquoted
from ..cpu.cpu_options import CpuOptions, CpuPolicy, VerifiedSession
from ..cpu.reference import read_reference
from ..cpu.weights import read_weights
from ..evidence import appraise_evidence
from ..gpu.collateral import fetch_nras_keys
from ..gpu.devices import Without
from ..policy.options import Expected, Policy
from ..session import appraise_session
from ..x509.certificate import read_pem
from .bundle_files import bundles_in
from .collateral_folder import Services
from .input import UsageError, read_text
from .kinds import INPUT_LIMITS, FileKind, demands_processor, least_level
from .report import Verdict, plain

VALID: Final = 0
INVALID: Final = 1
INCOMPLETE: Final = 3


def status_of(verdict: Verdict) -> int:
    return {"valid": VALID, "incomplete": INCOMPLETE}.get(verdict.word, INVALID)


def appraise(args: argparse.Namespace, kind: FileKind, text: str, data: bytes, options: dict[str, Any]) -> Any:
    session = session_of(args, options)
    if session is not None:
        options["session"] = session
    # The caller's command decides, and not the file; only `collateral` takes several kinds.
    about = kind if args.command == "collateral" else args.command
    if about == "session":
        return appraise_session(unquoted(text, INPUT_LIMITS), **options)
    if about == "evidence":
        return appraise_evidence(text, **options)
    options["expected"] = Expected(
        request=None if args.request is None else read_text(args.request),
        response=None if args.response is None else read_text(args.response),
        endpoint=args.endpoint,
        event=args.event,
        challenge=args.challenge,
    )
    return appraise_attestation(data if kind == "stream" else text, **options)


def options_of(args: argparse.Namespace, collateral: Any) -> dict[str, Any]:
    return {
        "at": args.at,
        "simulated_root": read_root(args.allow_simulated),
        "collateral": collateral,
        "policy": Policy(
            devices=args.device,
            max_age_seconds=args.max_age,
            max_batch=args.max_batch,
            min_level=least_level(args),
            required_checks=("cpu_form",) if demands_processor(args) else (),
        ),
        "cpu": CpuOptions(
            policy=cpu_policy(args),
            reference=read_references(args.reference),
            weights=_weights_of(args.weights),
        ),
        "release": args.released,
        "expected": Expected(challenge=args.challenge, nonce=args.nonce),
        "limits": INPUT_LIMITS,
        "bundles": bundles_in(args.bundle),
        "without": Without(reference_values=args.without_reference_values, revocation=args.without_revocation),
        # NVIDIA's keys for its remote service's tokens come over the network too.
        "fetch_nras_keys": None if args.offline else partial(fetch_nras_keys, on_fetch=told(args)),
    }


def session_of(args: argparse.Namespace, options: dict[str, Any]) -> VerifiedSession | None:
    """The session that the caller holds. The policy judges the attestation, which alone says how old it is. @raises UsageError"""
    if args.session is None:
        return None
    report = appraise_session(unquoted(read_text(args.session), INPUT_LIMITS), **{**options, "policy": Policy()})
    if report.session is not None:
        return report.session
    failed = next(check for check in report.checks if check.status == "fail")
    raise UsageError(f"--session {args.session}: it does not verify: {failed.code}: {failed.detail}")


def services_of(args: argparse.Namespace) -> Services:
    return Services(online=not args.offline, rim_url=args.rim_url, ocsp_url=args.ocsp_url, on_fetch=told(args))


def told(args: argparse.Namespace) -> Callable[[str], None]:
    """Who is told what is fetched."""
    return _silent if args.quiet else _fetching


def _silent(_: str) -> None:
    pass


def _fetching(what: str) -> None:
    print(f"fetching {plain(what)} …", file=sys.stderr)


def read_root(file: str | None) -> str | None:
    """@raises UsageError"""
    if file is None:
        return None
    text = read_text(file)
    try:
        read_pem(text, "--allow-simulated")
    except TypeError as cause:
        raise UsageError(f"--allow-simulated {file}: not a PEM certificate") from cause
    return text


def cpu_policy(args: argparse.Namespace) -> CpuPolicy:
    demands = args.demand or ()
    return CpuPolicy(
        products=args.product,
        tcb=args.tcb,
        chips=args.chip,
        require_alias_check="alias_check" in demands,
        require_ciphertext_hiding="ciphertext_hiding" in demands,
        require_smt_off="smt_off" in demands,
    )


def read_references(file: str | None) -> Any:
    """@raises UsageError"""
    return None if file is None else _read_option("reference", file, read_reference)


def _weights_of(given: str | None) -> str | None:
    """A file, or the verity root itself. @raises UsageError"""
    if given is None:
        return None
    if re.fullmatch("[0-9a-fA-F]{64}", given) is not None:
        return given.lower()
    root: str = _read_option("weights", given, read_weights)
    return root


def _read_option(name: str, file: str, read: Callable[[str], Any]) -> Any:
    """@raises UsageError"""
    text = read_text(file)
    try:
        return read(text)
    except TypeError as cause:
        raise UsageError(f"--{name} {file}: {cause}") from cause

"""Verifies an attestation: the ordered list of checks, top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from .binding.batch import check_batch
from .binding.bundle import Contents, check_bundle
from .binding.exchange import attestation_of, compare_exchange
from .binding.input import Input, read_input
from .common.checks import CheckFailure, CheckList, Passed, Skipped, VerificationError, passed, seen, skipped
from .cpu.binding import Answer, ExpectedSession, check_cpu, read_answer_cpu
from .cpu.cpu_options import CpuClaims, CpuContext, CpuOptions, CpuRoots, CpuVerifyOptions, CpuWithout
from .cpu.verify_cpu import read_cpu_options
from .cpu.weights import check_weights
from .gpu.device_evidence import input_of
from .gpu.devices import verify_devices
from .gpu.topology import DeviceClaims, VerifiedDevice
from .policy.options import (
    BatchClaims,
    Context,
    Exchange,
    OptionFields,
    TokenClaims,
    VerificationReport,
    Verified,
    VerifyOptions,
    read_options,
)
from .policy.verdict import Findings, Kind, check_policy, concluded
from .proto.attestation.attestation import Attestation
from .proto.attestation.batch import Batch
from .proto.attestation.raw import RawParts, nonce_of, split_raw
from .proto.bytes import is_well_formed
from .proto.strict_json import JsonTextError, duplicate_member
from .release_named import check_named_release
from .token import ParsedToken, TokenDevice, check_token_digests, parse_token, verify_token_signature
from .token.signature import TokenKeys, TokenSigner

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


def verify_attestation(value: object, **options: Unpack[OptionFields]) -> Verified:
    """
    Verifies that a GPU signed exactly this request and this answer.

    ```python
    collateral = create_collateral(online=True)
    verified = verify_attestation(response_text, collateral=collateral, expected=Expected(request=body))
    ```

    `value`: an attestation, or a response that carries one: as JSON text (a JSON string of it, too) or parsed. Text is
    better: the bytes of a response can be compared only where they are given. Or the bytes of an event stream that carries
    one, which are then compared as `expected.transcript` is. Options are the fields of VerifyOptions.

    Returns what was verified; `exchange` holds the signed texts, and is to be had in no other way.
    @raises VerificationError with the code of the first check that failed and the whole list.
    @raises TypeError for options that cannot be used.
    """
    run = _run_checks(value, read_options(VerifyOptions(**options)))
    report, raw = run.report, run.raw
    if not report.valid or raw is None or run.attestation is None:
        raise VerificationError(report.checks)
    return Verified(
        **{one.name: getattr(report, one.name) for one in fields(report)},
        exchange=Exchange(raw.endpoint, raw.request, raw.response, raw.stream, raw.timestamp),
        attestation=run.attestation,
    )


def appraise_attestation(value: object, **options: Unpack[OptionFields]) -> VerificationReport:
    """As `verify_attestation`, but a failed check is in what is returned, and the signed texts are not."""
    return _run_checks(value, read_options(VerifyOptions(**options))).report


@dataclass(frozen=True)
class Appraised:
    """One of many inputs, by its place among them."""

    index: int
    report: VerificationReport


def verify_many(values: Iterable[object], **options: Unpack[OptionFields]) -> Iterator[Appraised]:
    """
    Appraises one input after the other, in their order, and takes the next when the caller asks for it: memory does not grow with
    their number. Collateral, bundles and what was computed of them are shared.

    ```python
    options = {"collateral": create_collateral(online=True), "bundles": Bundles(load)}
    for one in verify_many(attestations, **options):
        print(one.index, one.report.valid)
    ```
    @raises TypeError as `verify_attestation`
    """
    for index, value in enumerate(values):
        yield Appraised(index, appraise_attestation(value, **options))


@dataclass(frozen=True)
class _Run:
    report: VerificationReport
    raw: RawParts | None
    attestation: Attestation | None


_EMPTY = Attestation(raw="", nonce="", token="")
"""Stands in for an attestation that could not be read, so that the checks after it can be named in the list."""


_FORM = ["form", "bundle"]
"""A compact attestation is read with its bundle."""


def _run_checks(value: object, context: Context) -> _Run:
    options = context.options
    cpu_context = _cpu_context(context)
    expected = options.expected
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
        expected = replace(expected, transcript=value)
    checks = CheckList(options.stop_at_failure)
    given = checks.run("form", [], lambda: _check_form(value, options))
    named = None if given is None else given.bundle
    expanded = None
    if given is not None and named is not None:
        compact = given.attestation
        expanded = checks.run("bundle", ["form"], lambda: check_bundle(compact, named, options.bundles, options.limits))
    attestation = _EMPTY if given is None else given.attestation
    if expanded is not None:
        attestation = expanded.attestation
    contents = None if expanded is None else expanded.contents
    carrier = None if given is None else given.carrier

    hashed = checks.run("raw_hash", ["form"], lambda: _check_hash(attestation, expected.nonce))
    raw = checks.run("raw_members", ["form"], lambda: _check_members(attestation.raw))
    checks.run(
        "expected_exchange",
        ["raw_members"],
        lambda: skipped("") if raw is None else compare_exchange(attestation, raw, expected, carrier),
    )

    token = checks.run("token_shape", _FORM, lambda: _check_shape(attestation.token, contents))

    def of_token(name: str, check: Callable[[ParsedToken], Passed[T] | Skipped]) -> T | None:
        return checks.run(name, ["token_shape"], lambda: skipped("") if token is None else check(token))

    of_token("token_nonce", lambda parsed: _check_token_nonce(parsed, attestation.nonce))
    of_token("token_result", _check_token_result)
    of_token("token_digests", lambda parsed: seen(check_token_digests(parsed)))
    signer = of_token("token_signature", lambda parsed: _check_token_signature(parsed, context))
    claims = None if token is None else _token_claims(checks, token, signer)

    devices = _check_evidence(checks, attestation, token, claims, context)
    checks.run(
        "token_report_match",
        ["token_shape", "report_form", "report_signature", "report_chain"],
        lambda: (
            skipped("there is no report beside the token")
            if token is None or attestation.evidence is None
            else compare_token_with_reports(token, [device.claims for device in devices])
        ),
    )
    batch = None if hashed is None else hashed.batch
    timestamp = None if raw is None else raw.timestamp
    release = check_named_release(checks, context, None if timestamp is None else timestamp * 1000)
    if release is not None:
        cpu_context = replace(cpu_context, reference=release.reference, release=release.claims)
    findings = Findings(
        list=checks,
        devices=devices,
        token=claims,
        appraised=_appraised_kinds(checks, token, claims),
        nonce=None if given is None else attestation.nonce,
        batch=None if batch is None else BatchClaims(batch.tree_size, batch.leaf_index),
        timestamp=timestamp,
        cpu=_check_processor(checks, attestation, contents, hashed, raw, options, cpu_context),
        release=None if release is None else release.claims,
        about="exchange",
        nvidia=context.nvidia,
        own_cpu_roots=options.cpu is not None and options.cpu.roots != CpuRoots(),
        challenged=expected.challenge is not None,
        names_session=raw is not None and raw.session is not None,
    )
    checks.run("policy", [*_FORM, "raw_members"], lambda: check_policy(findings, context))
    return _Run(concluded(findings), raw, None if given is None else attestation)


def _cpu_context(context: Context) -> CpuContext:
    options = context.options
    cpu = options.cpu or CpuOptions()
    return read_cpu_options(
        CpuVerifyOptions(
            at=context.at,
            roots=cpu.roots,
            simulated_roots=options.simulated_root,
            collateral=cpu.collateral,
            without=CpuWithout(revocation=options.without.revocation),
            policy=cpu.policy,
            reference=cpu.reference,
            weights=cpu.weights,
        )
    )


def _check_processor(
    checks: CheckList,
    attestation: Attestation,
    contents: Contents | None,
    hashed: _Hashed | None,
    raw: RawParts | None,
    options: VerifyOptions,
    context: CpuContext,
) -> CpuClaims | None:
    """Makes the checks of the member `cpu`; none where there is no such member and the caller expects none."""
    member = attestation.cpu
    if member is None and options.session is None and options.expected.challenge is None:
        if context.weights is not None:
            checks.run("cpu_weights", _FORM, lambda: check_weights(context.weights, None))
        return None
    form = checks.run("cpu_form", _FORM, lambda: read_answer_cpu(member, options.session))
    answer = Answer(
        raw_hash="" if hashed is None else hashed.raw_hash,
        timestamp=None if raw is None else raw.timestamp,
        evidence=attestation.evidence or (),
        session=None if raw is None else raw.session,
        digest=None if contents is None or contents.evidence is None else lambda: contents.evidence_digest,
    )
    asked = ExpectedSession(session=options.session, challenge=options.expected.challenge, at=None)
    return check_cpu(checks, form, answer, asked, context)


def _check_form(value: object, options: VerifyOptions) -> Passed[Input]:
    limits = options.limits
    if isinstance(value, bytes):
        carried = read_input(attestation_of(value, limits), limits)
        return passed("an event stream that carries an attestation", carried)
    given = read_input(value, limits, options.expected.event)
    return passed(
        "an attestation" if given.carrier is None else "a response that carries an attestation",
        given,
    )


@dataclass(frozen=True)
class _Hashed:
    raw_hash: str
    batch: Batch | None


def _check_hash(attestation: Attestation, expected: str | None) -> Passed[_Hashed]:
    # UTF-8 has no lone surrogates: an encoder puts U+FFFD in their place, and the hash would be that of another text.
    if not is_well_formed(attestation.raw):
        raise _other_hash("raw has a lone surrogate, so it is no text that could have been hashed")
    nonce, raw_hash = attestation.nonce, nonce_of(attestation.raw)
    batch = check_batch(attestation.batch, raw_hash, nonce) if attestation.has_batch else None
    if batch is None and raw_hash != nonce:
        raise _other_hash("nonce is not the SHA-256 of raw")
    if expected is not None and expected.lower() != nonce:
        raise _other_hash("nonce is not the one that is expected")
    detail = "nonce is the SHA-256 of raw"
    if batch is not None:
        detail = f"nonce commits to raw as leaf {batch.leaf_index} of {batch.tree_size}"
    return passed(detail, _Hashed(raw_hash, batch))


def _other_hash(message: str) -> CheckFailure:
    return CheckFailure("raw_hash_mismatch", message)


def _check_members(raw: str) -> Passed[RawParts]:
    try:
        parts = split_raw(raw)
        # Readers differ in which of the two they take, so nobody could say what was signed. A request is the caller's own.
        if duplicate_member(parts.response) is not None:
            raise JsonTextError("the response in raw names a member twice")
    except JsonTextError as cause:
        raise CheckFailure("raw_malformed", str(cause)) from cause
    return passed(f"request, response{'' if parts.stream is None else ', stream'} and timestamp", parts)


def _check_shape(token: str, contents: Contents | None) -> Passed[ParsedToken]:
    parsed = parse_token(token) if contents is None or contents.token is None else contents.parsed_token
    return passed(f"{parsed.kind}, about {_counted(len(parsed.devices), 'device')}", parsed)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _check_token_nonce(token: ParsedToken, nonce: str) -> Passed[Literal[True]]:
    if len(token.nonces) == 0 or any(one.lower() != nonce for one in token.nonces):
        raise CheckFailure("token_nonce_mismatch", "a part of the token is about another nonce")
    return seen(f"eat_nonce in {_counted(len(token.nonces), 'part')}")


def _check_token_result(token: ParsedToken) -> Passed[Literal[True]] | Skipped:
    if token.overall_result is False:
        raise CheckFailure("token_result_false", "the verifier beside the device said no")
    failed = next((device for device in token.devices if device.measres not in (None, "success")), None)
    if failed is not None:
        said = f"the verifier beside the device said that {failed.name} does not match"
        raise CheckFailure("token_result_false", said)
    if token.overall_result is None:
        return skipped("the token gives no overall result")
    return seen("the overall result is true")


def _check_token_signature(token: ParsedToken, context: Context) -> Passed[TokenSigner] | Skipped:
    """A self-asserted token carries no signature that proves anything: a skip, with the reason."""
    options = context.options
    keys = TokenKeys(options.nras_keys, options.countersign_keys, options.fetch_nras_keys)
    signed = verify_token_signature(token, keys, context.clocks.token)
    if signed.signature == "self-asserted":
        return skipped(f"self-asserted: {signed.detail}")
    return passed(signed.detail, signed.signature)


def _token_claims(checks: CheckList, token: ParsedToken, signer: TokenSigner | None) -> TokenClaims:
    if signer is None and not checks.unmet("token_signature"):
        signer = "self-asserted"
    return TokenClaims(token.kind, token.issuer, signer)


def _appraised_kinds(checks: CheckList, token: ParsedToken | None, claims: TokenClaims | None) -> list[Kind]:
    """The kinds of devices that NVIDIA's service passed; none where its token gives no result or names no device."""
    signed = claims is not None and claims.signature == "nvidia-signed"
    if token is None or not signed or not checks.passed("token_result"):
        return []
    return [_kind_of(device) for device in token.devices]


_OF_DEVICES = (
    "report_form",
    "report_nonce",
    "report_signature",
    "report_chain",
    "report_fwid",
    "revocation",
    "reference_values",
    "device_mode",
    "topology",
)
"""The checks that are made on evidence. Evidence may be absent only where NVIDIA signed the token."""


def _check_evidence(
    checks: CheckList,
    attestation: Attestation,
    token: ParsedToken | None,
    claims: TokenClaims | None,
    context: Context,
) -> Sequence[VerifiedDevice]:
    if attestation.evidence is not None:
        inputs = [input_of(one) for one in attestation.evidence]
        return verify_devices(checks, inputs, attestation.nonce, () if token is None else token.devices, context)
    # Without evidence everything rests on the token, which must then state a result.
    signed = claims is not None and claims.signature == "nvidia-signed"
    appraised = signed and token is not None and token.overall_result is True

    def check_absent(name: str) -> Passed[Literal[True]] | Skipped:
        if name == "device_mode" and token is not None:
            return _check_signed_mode(token)
        if appraised:
            return skipped("no evidence came; NVIDIA's service appraised it, by the token that it signed")
        raise CheckFailure("evidence_missing", "there is no evidence, and no result that NVIDIA signed")

    for name in _OF_DEVICES:
        after = _FORM if name == "report_form" else ["report_form", "token_shape"]
        checks.run(name, after, lambda name=name: check_absent(name))  # type: ignore[misc]
    return []


def _check_signed_mode(token: ParsedToken) -> Passed[Literal[True]]:
    """The mode by NVIDIA's signed token, where no report came with it."""
    if len(token.devices) == 0:
        raise CheckFailure("device_not_confidential", "the token is about no device")
    for device in token.devices:
        said = f"the token does not say of {device.name} that"
        if device.debug != "disabled":
            raise CheckFailure("debug_enabled", f"{said} debugging is off")
        if device.secure_boot is not True:
            raise CheckFailure("device_not_confidential", f"{said} it booted securely")
    return seen("secure boot and debugging off, by NVIDIA's signed word")


# Compares a token's claims about its devices with their signed reports.


def compare_token_with_reports(token: ParsedToken, reports: Sequence[DeviceClaims]) -> Passed[Literal[True]] | Skipped:
    """@raises CheckFailure: token_report_mismatch"""
    if len(token.devices) == 0:
        return skipped("the token says nothing of its devices")
    compared: set[int] = set()
    # NVIDIA's SDK has one verifier for GPUs and one for switches; two may also appraise the same devices.
    for verifier in dict.fromkeys(device.verifier for device in token.devices):
        its = [device for device in token.devices if device.verifier == verifier]
        kinds = {_kind_of(device) for device in its}
        theirs = [i for i, report in enumerate(reports) if report.kind in kinds]
        # A bare JWT does not name its device.
        about = theirs or list(range(len(reports)))
        _compare_devices(its, {i: reports[i] for i in about})
        compared.update(about)
    if len(compared) != len(reports):
        raise _mismatch(f"the token is about {len(compared)} devices, the evidence of {len(reports)}")
    devices = "the device" if len(reports) == 1 else f"{len(reports)} devices"
    return seen(f"driver, VBIOS and ueid of {devices} are the report's")


def _kind_of(device: TokenDevice) -> Kind:
    """NVIDIA's verifiers name submodules by kind: `GPU-0`, `SWITCH-0`."""
    return "switch" if "SWITCH" in device.name.upper() else "gpu"


def _compare_devices(devices: Sequence[TokenDevice], reports: Mapping[int, DeviceClaims]) -> None:
    if len(devices) != len(reports):
        raise _mismatch(f"the token is about {len(devices)} devices, the evidence of {len(reports)}")
    left = dict(reports)
    for device, own in zip(devices, reports, strict=True):
        index: int | None = own
        if device.ueid is not None:
            index = next((i for i, report in reports.items() if report.ueid == device.ueid), None)
        report = None if index is None else left.pop(index, None)
        if report is None:
            raise _mismatch(f"what the token says of {device.name} is about a device that is not in the evidence")
        _compare_one(device, report)


def _compare_one(device: TokenDevice, report: DeviceClaims) -> None:
    for what, claimed, signed in (
        ("driver", device.driver, report.driver),
        ("VBIOS", device.vbios, report.vbios),
        ("model", device.hwmodel, report.model),
    ):
        # NVIDIA's Python verifier writes '' for what it does not know.
        if claimed and (signed is None or claimed.upper() != signed.upper()):
            raise _mismatch(f"the token names another {what} for {device.name} than its report")


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("token_report_mismatch", message)

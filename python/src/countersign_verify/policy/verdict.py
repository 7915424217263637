"""The verdict in words: the level, what is proven, and what is not. And the relying party's policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..common.checks import CheckFailure, CheckList, Passed, Skipped, seen, skipped
from ..common.release_options import ReleaseClaims
from ..common.times import iso_time, milliseconds, unix_milliseconds
from ..cpu.cpu_options import CpuClaims, CpuSoftware
from ..gpu.devices import Pinned
from ..gpu.topology import VerifiedDevice, left_open
from ..proto.attestation.batch import MAX_LEAVES
from ..proto.strict_json import number_text
from .options import LEVELS, BatchClaims, Claims, Context, Level, TokenClaims, VerificationReport
from .release_words import release_leaves_open, release_sentence

Kind = Literal["gpu", "switch"]


@dataclass(frozen=True)
class Findings:
    list: CheckList
    devices: Sequence[VerifiedDevice]
    token: TokenClaims | None
    appraised: Sequence[Kind]
    """The kinds of the devices that NVIDIA's service passed; none where it did not pass or did not sign."""
    nonce: str | None
    batch: BatchClaims | None
    timestamp: int | None
    """Unix seconds; None for bare evidence."""
    cpu: CpuClaims | None
    """The processor whose evidence is bound to these devices; None without."""
    about: Literal["exchange", "nonce", "session"]
    """What the devices signed."""
    nvidia: Pinned
    own_cpu_roots: bool
    """Whether the caller's roots stand in place of AMD's and Intel's."""
    challenged: bool = False
    """Whether the session holds a challenge of the caller."""
    names_session: bool = False
    """Whether raw, which the devices signed, names a session."""
    release: ReleaseClaims | None = None
    """The release that the caller named; None where there is none, or its check failed."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Of the devices. Without evidence it rests on the token of NVIDIA's service."""
        return [device.claims.kind for device in self.devices] or self.appraised

    @property
    def simulated(self) -> bool:
        return any(device.simulated for device in self.devices) or (self.cpu is not None and self.cpu.simulated)

    @property
    def bound(self) -> bool:
        """Whether a processor's evidence is bound to these devices, and to this answer where there is one."""
        names = ["cpu_binding", "cpu_devices", *([] if self.about == "session" else ["cpu_answer"])]
        return all(self.list.passed(name) for name in names)

    @property
    def software(self) -> CpuSoftware | None:
        """The software that the caller knows, of a guest that is bound to these devices."""
        return self.cpu.software if self.cpu is not None and self.bound else None

    @property
    def shown_release(self) -> ReleaseClaims | None:
        """The release, where that software was compared with its list."""
        release, software = self.release, self.software
        if release is None or software is None or software.release != release.statement_sha256:
            return None
        return release


def concluded(findings: Findings) -> VerificationReport:
    valid = findings.list.valid
    claims = Claims(
        simulated=findings.simulated,
        time=None if findings.timestamp is None else iso_time(findings.timestamp),
        nonce=findings.nonce,
        batch=findings.batch,
        token=findings.token,
        devices=tuple(device.claims for device in findings.devices),
        cpu=findings.cpu,
        release=findings.release,
    )
    return VerificationReport(
        valid=valid,
        incomplete=findings.list.incomplete,
        level=level_of(findings) if valid else "none",
        checks=findings.list.checks,
        claims=claims,
        proven=tuple(_proven(findings)) if valid else (),
        not_proven=tuple(_not_proven(findings)) if valid else (_nothing(findings),),
    )


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def age_in_words(time: str, at: datetime) -> str:
    """`2 minutes ago`, or `5 seconds ahead of this clock`. @param time `Claims.time`"""
    age = (milliseconds(at) - unix_milliseconds(time) + 500) // 1000
    unit, length = next(((unit, seconds) for unit, seconds in _UNITS if abs(age) >= seconds), _UNITS[-1])
    count = abs(age) // length
    return f"{count} {unit}{'' if count == 1 else 's'} {'ahead of this clock' if age < 0 else 'ago'}"


def level_of(findings: Findings) -> Level:
    """The level where no check fails."""
    if findings.simulated or "gpu" not in findings.kinds:
        return "none"
    if not findings.bound:
        return "gpu"
    return "gpu+cpu" if findings.software is None else "measured"


def _signed_what(findings: Findings) -> str:
    exchange = "exactly this request, this answer and this timestamp"
    if findings.batch is not None:
        size = findings.batch.tree_size
        many = "one answer" if size == 1 else f"{size} answers, of which this is one"
        return f"a nonce that commits to {many}: {exchange}"
    if findings.about == "exchange":
        return f"the hash of {exchange}"
    if findings.about == "session":
        return "the statement of this session"
    return "the nonce beside its own evidence, not the same for all" if findings.nonce is None else "this nonce"


def _proven(findings: Findings) -> Iterator[str]:
    what = _signed_what(findings)
    if findings.simulated:
        under = "under the test root that the caller named"
        yield f"These texts are what a simulated device, {under}, signed: {what}."
        return
    passed = findings.list.passed
    if findings.devices:
        asked = "" if findings.bound else ", at the asking of software on its host"
        yield f"{_named(findings.devices, findings.nvidia.device)} signed {what}{asked}."
    if findings.bound and findings.cpu is not None:
        yield _cpu_proven(findings, findings.cpu)
    if findings.software is not None:
        yield from _software_proven(findings.software, findings.shown_release)
    if findings.appraised:
        yield (
            f"NVIDIA's remote attestation service appraised evidence of the {_kind_of(findings.appraised)} for {what}, "
            "and said yes."
        )
    if passed("reference_values"):
        signed = "NVIDIA signed for confidential mode"
        if not findings.nvidia.rim:
            signed = "were signed under the root that the caller gave"
        yield f"What it measured of its firmware has the reference values that {signed}."
    if passed("revocation"):
        kind = _kind_of([device.claims.kind for device in findings.devices])
        signers = ", and of those who signed its reference values" if passed("reference_values") else ""
        yield f"Nobody revoked a certificate of the authorities between the {kind}'s own and its root{signers}."
    if passed("expected_exchange"):
        yield "What the caller holds is what was signed."


def _cpu_proven(findings: Findings, cpu: CpuClaims) -> str:
    is_intel = cpu.type.endswith("TDX")
    maker = "Intel" if is_intel else "AMD"
    processor = "a processor with TDX" if is_intel else f"a {cpu.product} processor"
    guest = "a trust domain" if is_intel else "an SEV-SNP guest"
    key = f"A key that {maker} certified"
    if findings.own_cpu_roots:
        key = f"A key under a root that the caller trusts in place of {maker}'s"
    signed = "" if findings.about == "session" else ", which signed this answer"
    named = f"{guest} of launch measurement {cpu.measurement} named this session's key{signed}"
    return f"{key}, of {processor}, signed that {named}."


def _software_proven(software: CpuSoftware, release: ReleaseClaims | None) -> Iterator[str]:
    names = ", ".join(f"{name} {image}" for name, image in (software.images or {}).items())
    who = "the file's writer"
    if software.weights is not None:
        who = "its compose file, whose backend has no way out,"
    which = f"; {who} names {names}" if names else ""
    listed = "the caller's list" if release is None else f"the list of {release_sentence(release, software.launch)}"
    yield f"That guest's measurement and the launch file {software.launch} are on {listed}{which}."
    if software.model is not None:
        yield (
            f"Which weights: {software.model.name}, root {software.model.verity_root}, mounted read-only in that guest; "
            "nothing else could be loaded by the launch's own command."
        )


def _named(devices: Sequence[VerifiedDevice], nvidia: bool) -> str:
    models = ", ".join(dict.fromkeys(device.claims.model for device in devices))
    kind = _kind_of([device.claims.kind for device in devices])
    what = f"genuine NVIDIA {kind}" if nvidia else kind
    under = "" if nvidia else " under the root that the caller trusts in place of NVIDIA's"
    return f"{len(devices)} {what}s ({models}){under} each" if len(devices) > 1 else f"A {what} ({models}){under}"


def _kind_of(kinds: Sequence[Kind]) -> str:
    if "switch" not in kinds:
        return "GPU"
    return "device" if "gpu" in kinds else "NVSwitch"


def _weights_left_open(software: CpuSoftware | None) -> str:
    if software is None or software.model is None:
        return "Which model's weights ran."
    return (
        "That the engine used these weights for this answer: the bytes that were read are those of this root, and only an "
        "audit looks at what was computed."
    )


def _cpu_leaves_open(findings: Findings) -> Iterator[str]:
    """What a processor's evidence does not show."""
    software = findings.software
    if software is None:
        yield (
            "Which software asked: its measurement was not compared, and anybody who can run code in that guest can have any "
            "text signed."
        )
    else:
        if software.weights is None:
            yield (
                "Where the answer comes from: the launch file's images, model and egress are its writer's words, and of "
                "the compose file, which says the rest, it holds the hash only."
            )
        else:
            yield (
                "What the images do: the launch file names each by its digest, and what is in them was not looked at."
            )
        if software.uncompared is not None:
            yield f"All that the guest was started with: {software.uncompared}."
    if findings.shown_release is not None:
        yield from release_leaves_open(findings.shown_release)
    if not findings.list.passed("cpu_tcb"):
        yield "That the processor's firmware has no known hole: its TCB was not compared with a least one."
    yield "That nobody took over the guest since its start."
    yield "That the device which signed is in that machine, or computes for it: the guest wrote the list of its devices."
    yield (
        "That keys are in the processor or the guest only: anybody who owns a board can extract some (TEE.fail) and forge "
        "this level."
    )
    if not findings.challenged:
        yield "When the session began: its hour is by that machine's own clock, unless the caller demands a challenge."


def _not_proven(findings: Findings) -> Iterator[str]:
    passed, kind = findings.list.passed, _kind_of(findings.kinds)
    if findings.simulated:
        yield "Anything about hardware: the device is simulated in software, and anyone can make such a root."
    else:
        if not passed("reference_values"):
            yield (
                f"That the {kind} runs the firmware that NVIDIA published, in confidential mode: its measurements were "
                "not compared."
            )
        if passed("revocation"):
            yield (
                f"That the {kind}'s own certificate was not revoked: its boot ROM issued it, and no service answers for "
                "it."
            )
        else:
            yield "That the certificates were not revoked: nobody was asked."
    # Evidence may have been left out: no signed byte says how many GPUs there are.
    for one in left_open(findings.devices) if findings.devices else ():
        if one.what is not None:
            yield f"That {one.what}: {one.reason}."
    if findings.about == "exchange":
        yield from _exchange_leaves_open(findings, kind)
    elif findings.about == "session":
        if findings.bound:
            yield from _cpu_leaves_open(findings)
    else:
        yield "What the nonce stands for: a device signs whatever it is given."
    if findings.token is not None and findings.token.signature == "self-asserted":
        yield "What the token says beyond the evidence: anyone can make such a token."


def _exchange_leaves_open(findings: Findings, kind: str) -> Iterator[str]:
    if kind == "NVSwitch":
        yield "That a GPU computed the answer: none signed."
    else:
        yield f"That this {kind} computed the answer: it signed a hash that software on its host gave it."
    if findings.bound:
        yield _weights_left_open(findings.software)
        yield from _cpu_leaves_open(findings)
    else:
        yield "Which model's weights ran, which nothing here shows, or what software asked."
        if findings.names_session:
            yield "Why no processor is shown for it: what was signed names a session."
    yield f"When: the time in raw is the gateway's, and the {kind} has no clock."


# The relying party's own policy: freshness, and checks that may not be skipped.

_SKEW_SECONDS = 300
"""The tolerance between the gateway's clock and ours, by default."""


def _nothing(findings: Findings) -> str:
    if findings.list.incomplete:
        return "Anything: a check could not get what it needs."
    return "Anything: a check failed."


def check_policy(findings: Findings, context: Context) -> Passed[Literal[True]] | Skipped:
    """@raises CheckFailure: too_old, policy_refused, device_not_accepted, release_not_shown"""
    policy, passed = context.options.policy, findings.list.passed
    statements: list[str] = []
    if policy.max_age_seconds is not None or policy.max_ahead_seconds is not None:
        statements.append(_check_age(findings.timestamp, context))
    most = MAX_LEAVES if policy.max_batch is None else policy.max_batch
    if findings.batch is not None and findings.batch.tree_size > most:
        size = findings.batch.tree_size
        raise CheckFailure("policy_refused", f"the nonce commits to {size} answers; the caller accepts {most}")
    if policy.devices is not None:
        statements.append(_check_accepted(findings.devices, policy.devices))
    # What a check that could not run would have shown is not known, and the report is not valid in any case.
    if findings.list.incomplete:
        return skipped("level and required checks are not known: a check could not get what it needs")
    for name in policy.required_checks:
        if name != "policy" and not passed(name):
            raise CheckFailure("policy_refused", f"the caller requires the check {name}, which did not pass")
    if findings.release is not None and findings.shown_release is None:
        raise CheckFailure("release_not_shown", "no guest of the release that the caller named is shown")
    level, least = level_of(findings), policy.min_level or "none"
    if LEVELS.index(level) < LEVELS.index(least):
        raise CheckFailure("policy_refused", f"the level is {level}; the caller accepts {least} or more")
    if least != "none":
        statements.append(f"level {level}")
    if len(policy.required_checks) > 0:
        statements.append(f"{len(policy.required_checks)} required checks passed")
    return seen("; ".join(statements) or "the caller asked for no more")


def _check_accepted(devices: Sequence[VerifiedDevice], accepted: Sequence[str]) -> str:
    """Returns words. @raises CheckFailure: device_not_accepted"""
    if len(devices) == 0:
        message = "no device shows which one it is, and the caller accepts some only"
        raise CheckFailure("device_not_accepted", message)
    for device in devices:
        if device.identity not in accepted:
            message = f"the device {device.identity or ''} is not one that the caller accepts"
            raise CheckFailure("device_not_accepted", message)
    return f"{'the device is' if len(devices) == 1 else f'all {len(devices)} devices are'} the caller's"


def _check_age(timestamp: int | None, context: Context) -> str:
    policy = context.options.policy
    if timestamp is None:
        raise CheckFailure("policy_refused", "bare evidence does not say when it was made")
    age = milliseconds(context.at) // 1000 - timestamp
    ahead = _SKEW_SECONDS if policy.max_ahead_seconds is None else policy.max_ahead_seconds
    if age < -ahead:
        raise CheckFailure("policy_refused", f"the time in raw is {-age} seconds ahead")
    if policy.max_age_seconds is not None and age > policy.max_age_seconds:
        most = number_text(policy.max_age_seconds)
        raise CheckFailure("too_old", f"{age} seconds old; at most {most} are accepted")
    return f"{max(0, age)} seconds old"

"""A processor's evidence: every genuine case has its verdict, and nothing that is changed in one passes or escapes as an error."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256, sha384
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from countersign_verify.common.checks import CheckFailure, VerificationError
from countersign_verify.cpu.cpu_options import (
    CpuCollateral,
    CpuExpected,
    CpuPolicy,
    CpuRoots,
    CpuVerifyOptions,
    CpuWithout,
    VerifiedSession,
)
from countersign_verify.cpu.evidence.azure_vtpm import HclReport, TpmAttest, TpmQuote, check_vtpm, parse_tpm_attest
from countersign_verify.cpu.evidence.event_log import check_event_log, read_event_log, replay, runtime_payload
from countersign_verify.cpu.evidence.snp_report import parse_snp_report, tcb_of
from countersign_verify.cpu.evidence.tdx_quote import TdxQuote
from countersign_verify.cpu.pinned_roots import amd_roots, intel_roots
from countersign_verify.cpu.reference import (
    RTMR3_OPEN,
    Measured,
    NamedLaunch,
    check_launch,
    check_measurement,
    read_reference,
)
from countersign_verify.cpu.snp_checks import LEAST_TCB, check_snp_chain, check_snp_mode
from countersign_verify.cpu.tdx_checks import check_tdx_chain, check_tdx_identity, check_tdx_mode, state_of
from countersign_verify.cpu.tdx_collateral import collateral_end, find_collateral
from countersign_verify.cpu.verify_cpu import CpuReport, appraise_cpu, read_cpu_evidence, read_cpu_options, verify_cpu
from countersign_verify.proto.attestation.statement import read_statement
from countersign_verify.proto.strict_json import JsonTextError
from countersign_verify.x509 import parse_pem
from cpu_cases import CASES, OUTDATED, b64, case_of, file_of, member_of, options_of, verdict_of
from genuine import genuine, needs_genuine


def appraise(one: dict[str, Any], **change: Any) -> CpuReport:
    return appraise_cpu(json.dumps({**member_of(one), **change}), **options_of(one))


# Genuine evidence.


@needs_genuine
def test_there_are_55_cases() -> None:
    assert len(CASES) == 55


@needs_genuine
@pytest.mark.parametrize("one", CASES, ids=[one["id"] for one in CASES])
def test_a_genuine_case_has_its_verdict(one: dict[str, Any]) -> None:
    expected = one["expect"]
    only = "cpu_software" if one["kind"] in ("software", "eventlog") else None
    report = appraise(one)
    assert verdict_of(report.checks, only) == (
        "valid" if expected["valid"] else f"{expected['failed_check']} {expected['code']}"
    )
    others = [check.name for check in report.checks if check.status == "fail"][1:] if only is None else []
    assert [name for name in others if name not in expected.get("also_wrong", ())] == []
    statuses = {check.name: check.status for check in report.checks}
    stated = {name: status for name, status in expected.get("checks", {}).items() if name != "cpu_software"}
    assert {**statuses, **stated} == statuses
    if "tcb_status" in expected:
        assert report.claims is not None
        assert report.claims.tcb_status == expected["tcb_status"]


@needs_genuine
def test_the_pinned_roots_are_those_of_amd_and_intel() -> None:
    files = ("ask_ark_milan", "ask_ark_genoa", "ask_ark_turin_vcek", "intel_sgx_root")
    theirs = [parse_pem(genuine(f"cpu/roots/{name}.pem").decode())[-1] for name in files]
    own = (*amd_roots(), *intel_roots())
    assert [root.signed.tbs for root in own] == [root.signed.tbs for root in theirs]


@needs_genuine
def test_the_claims_are_what_the_report_says() -> None:
    one = case_of("turin-v5-caci")
    claims = verify_cpu(json.dumps(member_of(one)), **options_of(one)).to_dict()["claims"]
    assert claims["product"] == "Turin"
    assert claims["tcb"] == {"fmc": 1, "bl": 1, "tee": 1, "snp": 4, "ucode": 81}
    assert claims["chip_id"] == "59790fb1c39f35c1" + "00" * 56
    assert (claims["vmpl"], claims["simulated"], claims["rtmrs"], claims["software"]) == (0, False, None, None)


@needs_genuine
def test_without_a_revocation_list_the_verdict_is_incomplete() -> None:
    one = case_of("genoa-v3-caci")
    options = options_of(one)
    options["without"] = CpuWithout()
    report = appraise_cpu(json.dumps(member_of(one)), **options)
    assert verdict_of(report.checks) == "cpu_revocation revocation_unavailable"
    assert (report.valid, report.incomplete) == (False, True)
    with pytest.raises(VerificationError) as raised:
        verify_cpu(json.dumps(member_of(one)), **options)
    assert raised.value.code == "revocation_unavailable"


@needs_genuine
def test_the_callers_collateral_stands_in_for_that_of_the_evidence() -> None:
    one = case_of("v4-uptodate")
    member = member_of(one)
    collateral = member.pop("collateral")
    options = options_of(one)
    assert verdict_of(appraise_cpu(member, **options).checks) == "cpu_tcb collateral_unavailable"
    options["collateral"] = CpuCollateral(tdx=collateral)
    assert appraise_cpu(member, **options).valid
    evidence = read_cpu_evidence(member_of(one)).value.member.collateral
    assert evidence is not None
    assert collateral_end(evidence) > datetime(2025, 6, 1, tzinfo=timezone.utc)
    options["collateral"] = CpuCollateral(tdx=evidence)
    assert appraise_cpu(member, **options).valid


@needs_genuine
def test_collateral_may_have_the_tenth_member_of_dcap_qvl() -> None:
    one = case_of("v4-uptodate")
    member, options = member_of(one), options_of(one)
    nine = member["collateral"]
    for chain in (None, "", "a chain"):
        member["collateral"] = {**nine, "pck_certificate_chain": chain}
        assert appraise_cpu(member, **options).valid
        own = {**options, "collateral": CpuCollateral(tdx=member["collateral"])}
        assert appraise_cpu(member_of(one), **own).valid
    for wrong in (7, " " * 600_000):
        member["collateral"] = {**nine, "pck_certificate_chain": wrong}
        assert verdict_of(appraise_cpu(member, **options).checks) == "cpu_form cpu_malformed"
        with pytest.raises(TypeError):
            appraise_cpu(member_of(one), **{**options, "collateral": CpuCollateral(tdx=member["collateral"])})


@needs_genuine
def test_no_check_runs_after_the_first_that_fails_where_the_caller_says_so() -> None:
    one = case_of("milan-v2-debug")
    options = options_of(one)
    options["stop_at_failure"] = True
    checks = appraise_cpu(member_of(one), **options).checks
    after = {check.name for check in checks if check.detail.startswith("not run: ")}
    assert verdict_of(checks) == "cpu_mode debug_enabled"
    assert after == {"cpu_tcb", "cpu_binding", "cpu_measurement", "cpu_software"}


# Changed evidence.

SIGNED = [
    ("turin-v5-caci", "report", 0, 1_184, 7),
    ("milan-v2", "report", 0, 1_184, 13),
    # Up to the certificates, in whose PEM a bit of base64 may mean nothing.
    ("v4-uptodate", "report", 0, b"-----BEGIN", 7),
    ("v5-uptodate", "report", 0, b"-----BEGIN", 11),
    ("tdx-v2", "quote", 0, b"-----BEGIN", 11),
    # Without the header before and behind the processor's own report, which nobody signs.
    ("snp-milan-v1", "report", 32, 1_216, 11),
    ("snp-milan-v1", "report", 1_236, b"}\0", 11),
]


@needs_genuine
@pytest.mark.parametrize(("name", "member", "first", "end", "step"), SIGNED)
def test_evidence_with_another_byte_is_refused(name: str, member: str, first: int, end: int | bytes, step: int) -> None:
    one = case_of(name)
    data = base64.b64decode(member_of(one)[member])
    last = end if isinstance(end, int) else data.index(end, first)
    passing = [
        at
        for at in range(first, last, step)
        if appraise(one, **{member: b64(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])}).valid
    ]
    assert (passing, last > first) == ([], True)


@needs_genuine
@pytest.mark.parametrize("cut", [0, 1, 47, 48, 600, 1_183, 4_000])
def test_evidence_that_breaks_off_is_malformed(cut: int) -> None:
    for name, member in (("turin-v5-caci", "report"), ("v4-uptodate", "report"), ("snp-milan-v1", "report")):
        one = case_of(name)
        data = base64.b64decode(member_of(one)[member])
        if cut < len(data):
            checks = appraise(one, **{member: b64(data[:cut])}).checks
            assert verdict_of(checks) == "cpu_form cpu_malformed"


# The form.

REPORT = {"type": "SEV_SNP", "report": "", "certificates": ""}
FORMS: list[tuple[object, str]] = [
    ("", "cpu_malformed"),
    ("null", "cpu_malformed"),
    ("[]", "cpu_malformed"),
    ("{}", "cpu_malformed"),
    (None, "cpu_malformed"),
    (b"{}", "cpu_malformed"),
    ("[" * 100_000, "cpu_malformed"),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "cpu_malformed"),
    ('{"type":"X","a":' + "[" * 100_000 + "]" * 100_000 + "}", "cpu_unsupported"),
    ('{"type":"X","type":"X"}', "cpu_malformed"),
    ('{"type":"X","typ\\u0065":"X"}', "cpu_malformed"),
    ('{"type":"X"}', "cpu_unsupported"),
    ('{"type":"__proto__"}', "cpu_unsupported"),
    ('{"type":null}', "cpu_malformed"),
    ('{"type":"X","n":NaN}', "cpu_malformed"),
    ('{"type":"X","n":' + "9" * 5_000 + "}", "cpu_unsupported"),
    ("\ufeff" + json.dumps(REPORT), "cpu_malformed"),
    (" " * (8 * 1024 * 1024 + 1), "cpu_malformed"),
    (REPORT, "cpu_malformed"),
    ({**REPORT, "more": 1}, "cpu_malformed"),
    ({"type": "SEV_SNP", "report": ""}, "cpu_malformed"),
    ({**REPORT, "report": "A" * (64 * 1024 + 4)}, "cpu_malformed"),
    ({**REPORT, "report": "\ud800"}, "cpu_malformed"),
    ({**REPORT, "collateral": {"crl": "", "more": ""}}, "cpu_malformed"),
    ({"type": "TDX", "report": "", "certificates": ""}, "cpu_malformed"),
    ({"type": "TDX", "report": "", "collateral": {}}, "cpu_malformed"),
]


@pytest.mark.parametrize(("given", "code"), FORMS, ids=range(len(FORMS)))
def test_what_is_no_evidence_fails_by_its_form_alone(given: object, code: str) -> None:
    report = appraise_cpu(given)
    assert [(check.name, check.code) for check in report.checks if check.status == "fail"] == [("cpu_form", code)]
    assert all(check.status == "skip" for check in report.checks[1:])
    assert (report.valid, report.claims) == (False, None)


OPTIONS: list[dict[str, Any]] = [
    {"at": "2026-01-01"},
    {"at": datetime(2026, 1, 1)},
    {"roots": CpuRoots(amd="no PEM")},
    {"roots": CpuRoots(intel="")},
    {"roots": {"amd": ""}},
    {"simulated_roots": "no PEM"},
    {"policy": CpuPolicy(min_tcb_evaluation=float("nan"))},
    {"policy": CpuPolicy(min_tcb_evaluation=-1)},
    {"policy": CpuPolicy(products="Turin")},
    {"policy": CpuPolicy(chips=["C1" * 64])},
    {"policy": CpuPolicy(chips=["c1" * 8])},
    {"policy": CpuPolicy(chips="c1" * 64)},
    {"policy": CpuPolicy(min_tcb={"turin": {"snp": 9}})},
    {"policy": CpuPolicy(min_tcb={"Turin": 1})},  # type: ignore[dict-item]
    {"policy": CpuPolicy(min_tcb={"Turin": {"bl": "1"}})},  # type: ignore[dict-item]
    {"collateral": CpuCollateral(tdx={})},
    {"collateral": CpuCollateral(tdx="ab")},  # type: ignore[arg-type]
    {"collateral": CpuCollateral(amd_crl="DER")},  # type: ignore[arg-type]
    {"expected": CpuExpected(report_data="0")},
    {"expected": CpuExpected(report_data="00" * 65)},
    {"reference": "{}"},
    {"reference": "[" * 100_000},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_an_option_that_cannot_be_used_is_the_callers_error(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        appraise_cpu(REPORT, **options)


# Checks one by one, on what genuine evidence would have to say for them to fail.


@needs_genuine
def test_each_reserved_byte_of_a_report_must_be_zero() -> None:
    data = file_of(case_of("turin-v5-caci"), "report")
    for at in (0x4C, 0x18B, 0x19F, 0x1EB, 0x1EF, 0x208, 0x29F, 0x2D0, 0x318, 0x330, 0x49F):
        with pytest.raises(CheckFailure, match="reserved bytes are not zero"):
            parse_snp_report(data[:at] + b"\1" + data[at + 1 :])
    for at, value, code in ((0, 6, "cpu_unsupported"), (0x34, 2, "cpu_unsupported"), (0x0A, 0, "cpu_malformed")):
        with pytest.raises(CheckFailure) as raised:
            parse_snp_report(data[:at] + bytes([value]) + data[at + 1 :])
        assert raised.value.code == code


def test_a_byte_that_means_nothing_makes_a_tcb_none() -> None:
    assert tcb_of(bytes([1, 2, 0, 0, 0, 0, 3, 4]), "Genoa") == {"bl": 1, "tee": 2, "snp": 3, "ucode": 4}
    assert tcb_of(bytes([1, 2, 3, 4, 0, 0, 0, 5]), "Turin") == {"fmc": 1, "bl": 2, "tee": 3, "snp": 4, "ucode": 5}
    assert tcb_of(bytes([1, 2, 1, 0, 0, 0, 3, 4]), "Milan") is None


def tdx_refusal(quote: TdxQuote, **demands: Any) -> str | None:
    """The code with which the mode of a guest is refused; None: it is not."""
    at = options_of(case_of("v5-uptodate"))["at"]
    context = read_cpu_options(CpuVerifyOptions(at=at, policy=CpuPolicy(**demands)))
    try:
        assert check_tdx_mode(quote, check_tdx_chain(quote, context).value, True, context).value
    except CheckFailure as failure:
        return failure.code
    return None


@needs_genuine
@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ("0100001000000000", "debug_enabled"),
        ("8000001000000000", "debug_enabled"),
        ("0000003000000000", "cpu_policy_refused"),
        ("0000000000000000", "cpu_policy_refused"),
        ("0001001000000000", "cpu_policy_refused"),
        ("0000021000000000", "cpu_policy_refused"),
        ("0000001000000020", "cpu_policy_refused"),
        ("0000001000000000", None),
        ("000001d8000000c0", None),
    ],
)
def test_a_guest_that_can_be_looked_into_or_moved_is_refused(attributes: str, code: str | None) -> None:
    quote = read_cpu_evidence(member_of(case_of("v5-uptodate"))).value.tdx
    assert quote is not None
    assert tdx_refusal(replace(quote, body=replace(quote.body, td_attributes=bytes.fromhex(attributes)))) == code


@needs_genuine
@pytest.mark.parametrize(
    ("xfam", "code"),
    [
        ("e7db0e0000000000", None),
        ("efdb0e0000000000", "cpu_policy_refused"),
        ("e7db0e0000000080", "cpu_policy_refused"),
    ],
)
def test_reserved_bits_of_xfam_are_refused(xfam: str, code: str | None) -> None:
    quote = read_cpu_evidence(member_of(case_of("v5-uptodate"))).value.tdx
    assert quote is not None
    assert tdx_refusal(replace(quote, body=replace(quote.body, xfam=bytes.fromhex(xfam)))) == code


@needs_genuine
def test_reserved_bits_of_policy_are_refused() -> None:
    one = case_of("genoa-v3-caci")
    member, context = (
        read_cpu_evidence(member_of(one)).value,
        read_cpu_options(CpuVerifyOptions(at=options_of(one)["at"])),
    )
    assert member.snp is not None
    path = check_snp_chain(member.member.certificates, context).value
    known = replace(member.snp, policy=0x3F3FF1F)
    assert check_snp_mode(known, path, context).value
    for bit in (26, 63):
        with pytest.raises(CheckFailure) as raised:
            check_snp_mode(replace(known, policy=known.policy | 1 << bit), path, context)
        assert raised.value.code == "cpu_policy_refused"


def snp_refusal(change: dict[str, Any], **demands: Any) -> str | None:
    """The code with which the mode of a changed guest on Genoa is refused; None: it is not."""
    one = case_of("genoa-v3-caci")
    member = read_cpu_evidence(member_of(one)).value
    context = read_cpu_options(CpuVerifyOptions(at=options_of(one)["at"], policy=CpuPolicy(**demands)))
    assert member.snp is not None
    path = check_snp_chain(member.member.certificates, context).value
    try:
        assert check_snp_mode(replace(member.snp, **change), path, context).value
    except CheckFailure as failure:
        return failure.code
    return None


REFUSED = "cpu_policy_refused"
DEMANDS = [
    ("require_alias_check", 0x05, 0x30000, REFUSED),
    ("require_alias_check", 0x25, 0x30000, None),
    ("require_smt_off", 0x25, 0x20000, REFUSED),
    ("require_smt_off", 0x24, 0x30000, REFUSED),
    ("require_smt_off", 0x24, 0x20000, None),
    ("require_ciphertext_hiding", 0x25, 0x1030000, REFUSED),
    ("require_ciphertext_hiding", 0x35, 0x30000, REFUSED),
    ("require_ciphertext_hiding", 0x35, 0x1030000, None),
]


@needs_genuine
@pytest.mark.parametrize(("name", "platform_info", "policy", "code"), DEMANDS, ids=range(len(DEMANDS)))
def test_what_the_caller_demands_of_a_machine(name: str, platform_info: int, policy: int, code: str | None) -> None:
    guest = {"platform_info": platform_info, "policy": policy}
    assert snp_refusal(guest, **{name: True}) == code
    assert snp_refusal(guest) is None
    quote = read_cpu_evidence(member_of(case_of("v5-uptodate"))).value.tdx
    assert quote is not None
    assert tdx_refusal(quote, **{name: True}) == REFUSED
    assert tdx_refusal(quote) is None


@needs_genuine
def test_the_chips_that_the_caller_accepts() -> None:
    chip, other, masked = "c1" * 64, "c2" * 64, "00" * 64
    own = bytes.fromhex(chip)
    for chips, chip_id, code in (
        ([chip, other], own, None),
        ([other], own, REFUSED),
        ([], own, REFUSED),
        # As VLEKs may.
        ([chip, masked], bytes(64), REFUSED),
    ):
        assert snp_refusal({"chip_id": chip_id}, chips=chips) == code
    quote = read_cpu_evidence(member_of(case_of("v5-uptodate"))).value.tdx
    assert quote is not None
    ppid = "2734b654f553596897eaadfb5667a954"
    assert tdx_refusal(quote, chips=["98" * 16]) == REFUSED
    assert tdx_refusal(quote, chips=["98" * 16, ppid]) is None
    one = case_of("v5-uptodate")
    claims = verify_cpu(member_of(one), **options_of(one)).claims
    assert claims is not None
    assert (claims.chip_id, claims.ppid) == (None, ppid)


@needs_genuine
@pytest.mark.parametrize(("name", "before", "now", "reason"), OUTDATED, ids=[name for name, *_ in OUTDATED])
def test_evidence_of_old_firmware_is_refused_by_default(name: str, before: str, now: str, reason: str) -> None:
    one = case_of(name)
    options = options_of(one)
    assert verdict_of(appraise_cpu(member_of(one), **options).checks) == before
    options["policy"] = CpuPolicy()
    assert verdict_of(appraise_cpu(member_of(one), **options).checks) == now, reason
    options["policy"] = CpuPolicy(min_tcb={"Genoa": {"ucode": 84}})
    assert verdict_of(appraise_cpu(member_of(one), **options).checks) == before


@needs_genuine
def test_the_least_tcb_of_turin() -> None:
    one = case_of("turin-v5-caci")
    options = options_of(one)
    for min_tcb, verdict in (
        (None, "valid"),
        ({"Turin": {"snp": 5}}, "cpu_tcb tcb_not_accepted"),
        ({"Turin": {}}, "valid"),
    ):
        options["policy"] = CpuPolicy(min_tcb=min_tcb)
        assert verdict_of(appraise_cpu(member_of(one), **options).checks) == verdict
    assert LEAST_TCB["Turin"] == {"snp": 4}


@needs_genuine
def test_the_worst_part_decides_the_platforms_state() -> None:
    one = case_of("v5-uptodate")
    evidence = read_cpu_evidence(member_of(one)).value
    quote = evidence.tdx
    assert quote is not None
    context = read_cpu_options(CpuVerifyOptions(at=options_of(one)["at"]))
    path = check_tdx_chain(quote, context).value
    collateral = find_collateral(evidence.member.collateral, path.root, context)

    def status(**by: Any) -> str | None:
        info, identity = collateral.tcb_info, collateral.qe_identity
        for part, value in by.items():
            if part == "qe":
                first, *more = identity.levels
                identity = replace(identity, levels=(replace(first, status=value), *more))
            if part == "platform":
                info = replace(info, levels=tuple(replace(level, status=value) for level in info.levels))
            if part == "pce":
                info = replace(info, levels=tuple(replace(level, pce_svn=value) for level in info.levels))
        state = state_of(quote, path, replace(collateral, tcb_info=info, qe_identity=identity))
        return None if state is None else state.status

    assert status() == "UpToDate"
    assert status(platform="SWHardeningNeeded") == "SWHardeningNeeded"
    assert status(qe="OutOfDate") == "OutOfDate"
    assert status(platform="ConfigurationNeeded", qe="OutOfDate") == "OutOfDateConfigurationNeeded"
    assert status(platform="Revoked") == "Revoked"
    assert status(platform="Revoked", qe="NotSupported") == "NotSupported"
    assert status(pce=65_535) == "NotSupported"
    other = replace(path, pck=replace(path.pck, fmspc="000000000000"))
    assert state_of(quote, other, collateral) is None
    signer = replace(collateral.qe_identity, mr_signer=bytes(32))
    with pytest.raises(CheckFailure, match="the quoting enclave is not Intel's"):
        check_tdx_identity(quote, replace(collateral, qe_identity=signer))


# Event logs, statements, launch files, reference values.


def event(name: str, payload: bytes, imr: float = 3, digest: str | None = None) -> dict[str, Any]:
    own = sha384((0x08000001).to_bytes(4, "little") + f":{name}:".encode() + payload).hexdigest()
    head = {"imr": imr, "event_type": 0x08000001, "digest": digest or own}
    return {**head, "event": name, "event_payload": payload.hex()}


def log_of(*events: object) -> bytes:
    return json.dumps(events).encode()


def test_an_event_log_replays_to_registers() -> None:
    one = event("countersign-launch", b"\1" * 32)
    events = read_event_log(log_of(one, event("app-id", b"")))
    first = sha384(bytes(48) + bytes.fromhex(one["digest"])).digest()
    assert replay(events)[:3] == [bytes(48)] * 3
    assert replay(events)[3] == sha384(first + events[1].digest).digest()
    assert runtime_payload(events, "countersign-launch") == b"\1" * 32
    assert runtime_payload(read_event_log(log_of(one, one)), "countersign-launch") is None
    # Software that was launched can add events, but only behind it.
    other = event("app-id", b"")
    assert runtime_payload(read_event_log(log_of(other, one)), "countersign-launch") is None
    early = event("countersign-launch", b"\2" * 32, imr=2)
    assert runtime_payload(read_event_log(log_of(early, one)), "countersign-launch") == b"\1" * 32
    assert runtime_payload(read_event_log(log_of(early)), "countersign-launch") is None
    # dstack leaves digests empty.
    assert read_event_log(log_of({**one, "digest": ""})) == read_event_log(log_of(one))
    # EV_NO_ACTION extends nothing.
    assert read_event_log(log_of({**one, "event_type": 3, "digest": ""}, one)) == read_event_log(log_of(one))
    assert [event.rtmr for event in read_event_log(log_of(event("x", b"", imr=3.0)))] == [3]


def test_a_log_without_events_of_rtmr3_leaves_it_open() -> None:
    early, late = event("boot", b"", imr=2), event("key", b"")
    rtmrs = replay(read_event_log(log_of(early, late)))
    found = check_event_log(rtmrs, log_of(early))
    assert (found.detail, found.value.explains_rtmr3) == (
        "1 events replay to RTMR0 to 2; RTMR3 is not explained by the log",
        False,
    )
    assert check_event_log(rtmrs, log_of(early, late)).value.explains_rtmr3
    guest = {"type": "TDX", "rtmr0": ["00" * 48], "launch_in": "measurement"}
    measured = Measured("TDX", None, None, None, True)
    for listed, left in (({}, RTMR3_OPEN), ({"rtmr3": [rtmrs[3].hex()]}, None)):
        software = check_launch({**guest, **listed}, {"launch": [SHA]}, measured, NamedLaunch(SHA), found).value
        assert software is not None
        assert software.uncompared == left
    for wrong in (log_of(early, event("other key", b"")), log_of(), log_of(late)):
        with pytest.raises(CheckFailure) as raised:
            check_event_log(rtmrs, wrong)
        assert raised.value.code == "event_log_mismatch"


@needs_genuine
def test_a_register_that_is_pinned_needs_no_log_that_replays_it() -> None:
    quote = read_cpu_evidence(member_of(case_of("v4-dstack-rtmr3"))).value.tdx
    assert quote is not None
    mrtd, (rtmr0, rtmr1, rtmr2, rtmr3) = quote.body.mr_td.hex(), [one.hex() for one in quote.body.rtmrs]
    guest = {"type": "TDX", "mrtd": [mrtd], "rtmr0": [rtmr0], "rtmr1": [rtmr1], "rtmr2": [rtmr2]}
    measured = Measured("TDX", None, quote.body, None, has_event_log=False)
    assert check_measurement(measured, {"cpu": [{**guest, "rtmr3": [rtmr3]}]}).value["rtmr3"] == [rtmr3]
    for entry in ({**guest, "rtmr3": ["00" * 48]}, guest):
        with pytest.raises(CheckFailure) as raised:
            check_measurement(measured, {"cpu": [entry]})
        assert raised.value.code == "measurement_mismatch"


LOGS = [
    b"",
    b"[",
    b"[]]",
    b"\xff",
    b"[" * 200_000,
    log_of(*[event("x", b"")] * 8_193),
    log_of(None),
    log_of(event("x", b"", imr=4)),
    log_of(event("x", b"", imr=True)),
    log_of(event("x", b"", imr=0.5)),
    log_of(event("a:b", b"")),
    log_of(event("x", b"", digest="00" * 48)),
    log_of({**event("x", b"", imr=2), "digest": ""}),
    log_of({**event("x", b""), "event_payload": "0"}),
    log_of({**event("x", b""), "event_type": 2**32}),
    b"[" + b" " * 1024 * 1024 + b"]",
]


@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_a_log_that_cannot_be_read_is_a_mismatch(log: bytes) -> None:
    with pytest.raises(CheckFailure) as raised:
        read_event_log(log)
    assert raised.value.code == "event_log_mismatch"


STATEMENT = {
    "purpose": "countersign.session.v1",
    "challenge": None,
    "key": "AAAA",
    "devices": ["ab" * 32],
    "tls": [],
    "hpke": None,
    "launch": None,
    "not_before": 1_000,
    "not_after": 4_600,
}


def written(**change: object) -> str:
    return json.dumps({**STATEMENT, **change}, separators=(",", ":"))


def test_a_statement_is_read_as_it_is_written() -> None:
    assert read_statement(written()).not_after == 4_600
    assert VerifiedSession(written(hpke="AAAA"), None).hpke == "AAAA"  # type: ignore[arg-type]
    assert VerifiedSession(written(), None).hpke is None  # type: ignore[arg-type]
    assert read_statement(written(challenge="cd" * 32, hpke="AAAA", tls=["ab" * 32] * 16)).hpke == "AAAA"
    texts = [
        "",
        "null",
        "[" * 100_000,
        written() + " ",
        written(more=1),
        written(purpose="countersign_verify.session.v2"),
        written(challenge="CD" * 32),
        written(challenge="cd" * 32 + "\n"),
        written(key=""),
        written(key="A" * 257),
        written(devices=[]),
        written(devices=["ab" * 32] * 65),
        written(devices="ab"),
        written(tls=["ab" * 32] * 17),
        written(hpke=""),
        written(launch="AB"),
        written(not_before=-1),
        written(not_before=True),
        written(not_after=4_601),
        written(not_after=1_000),
        written(not_after=4600.0),
        written().replace("4600", "46e2"),
        written().replace("1000", "00"),
        written().replace("{", '{"key":"AAAA",', 1),
        written().replace('"key"', '"k\\u0065y"'),
        written(hpke="A" * 16_385),
    ]
    for text in texts:
        with pytest.raises(JsonTextError):
            read_statement(text)


HEX, SHA = "ab" * 48, "cd" * 32
SNP = {"type": "SEV_SNP", "measurement": [HEX], "launch_in": "host_data"}
TDX = {"type": "TDX", "mrtd": [HEX], "rtmr0": None, "rtmr1": [HEX], "rtmr2": [HEX], "launch_in": "rtmr3"}
AZURE = {"type": "AZURE_SEV_SNP", "measurement": [HEX], "pcrs": {"11": [SHA]}, "launch_in": "measurement"}
LIST = {"version": 1, "cpu": [SNP], "launch": [SHA]}


def of(*guests: object) -> dict[str, object]:
    return {**LIST, "cpu": list(guests)}


def without(guest: dict[str, Any], name: str) -> dict[str, Any]:
    return {one: value for one, value in guest.items() if one != name}


USABLE: list[object] = [
    LIST,
    json.dumps(LIST, indent=2),
    json.dumps(LIST).replace(": 1", ": 1.0").replace('"cpu"', '"\\u0063pu"'),
    of(SNP, TDX, AZURE, {**AZURE, "type": "AZURE_TDX"}),
    of({**SNP, "vmpl": [0, 1, 2, 3], "id_key_digest": [HEX]}, {**TDX, "rtmr3": [HEX], "rtmr0": [HEX]}),
    of({**AZURE, "pcrs": {str(n): [SHA] for n in range(24)}}),
    of(*[SNP] * 1_024),
    json.dumps(LIST).ljust(1_048_576),
]
UNUSABLE: list[object] = [
    "",
    "null",
    json.dumps(LIST).ljust(1_048_577),
    json.dumps(LIST).replace("{", '{"version":1,', 1),
    {**LIST, "version": 2},
    {**LIST, "version": True},
    {**LIST, "version": "1"},
    {**LIST, "more": 1},
    of(),
    of(*[SNP] * 1_025),
    of(None),
    {**LIST, "launch": []},
    {**LIST, "launch": [SHA.upper()]},
    {**LIST, "launch": [SHA + "\n"]},
    {**LIST, "launch": SHA},
    of({**SNP, "type": "SEV"}),
    of({**SNP, "mrtd": [HEX]}),
    of(without(SNP, "measurement")),
    of({**SNP, "vmpl": [4]}),
    of({**SNP, "vmpl": [True]}),
    of({**SNP, "vmpl": []}),
    of({**SNP, "measurement": [SHA]}),
    of({**SNP, "launch_in": "rtmr3"}),
    of({**SNP, "launch_in": ["host_data"]}),
    of(without(TDX, "rtmr0")),
    of({**TDX, "vmpl": [0]}),
    of({**TDX, "rtmr3": None}),
    of({**AZURE, "pcrs": {}}),
    of({**AZURE, "pcrs": {"24": [SHA]}}),
    of({**AZURE, "pcrs": {"011": [SHA]}}),
    of({**AZURE, "pcrs": {"\u0661": [SHA]}}),
    of({**AZURE, "launch_in": "host_data"}),
]


@pytest.mark.parametrize("given", USABLE, ids=range(len(USABLE)))
def test_a_list_of_reference_values_can_be_used(given: object) -> None:
    assert read_reference(given)["version"] == 1


@pytest.mark.parametrize("given", UNUSABLE, ids=range(len(UNUSABLE)))
def test_a_list_that_is_not_one_cannot_be_used(given: object) -> None:
    with pytest.raises(TypeError, match="reference cannot be used"):
        read_reference(given)


@needs_genuine
def test_a_guest_is_one_of_the_callers_or_is_refused() -> None:
    one = case_of("milan-v3-caci")
    member = member_of(one)
    report = base64.b64decode(member["report"])
    own = {"type": "SEV_SNP", "measurement": [report[0x90:0xC0].hex()], "launch_in": "host_data"}
    launch = report[0xC0:0xE0].hex()

    def said(*guests: object, files: tuple[str, ...] = (launch,)) -> str:
        options = options_of(one)
        options["reference"] = {"version": 1, "cpu": list(guests), "launch": list(files)}
        verified = appraise_cpu(member, **options)
        software = None if verified.claims is None else verified.claims.software
        assert (software is None) == (not verified.valid)
        return verdict_of(verified.checks)

    assert said(own) == "valid"
    assert said({**own, "measurement": [HEX]}, own) == "valid"
    assert said({**own, "measurement": [HEX]}) == "cpu_measurement measurement_mismatch"
    assert said({**own, "vmpl": [1]}) == "cpu_measurement measurement_mismatch"
    assert said({**own, "id_key_digest": [HEX]}) == "cpu_measurement measurement_mismatch"
    assert said(own, files=(SHA,)) == "cpu_software software_mismatch"
    assert said({**own, "launch_in": "measurement"}) == "cpu_software software_mismatch"


@needs_genuine
def test_a_vtpms_quote_must_be_over_all_of_its_registers() -> None:
    message = base64.b64decode(member_of(case_of("snp-milan-v1"))["tpm"]["message"])
    attest = parse_tpm_attest(message)
    assert len(attest.pcr_digest) == len(sha256().digest())
    for changed in (
        message[:-1],
        message + b"\0",
        b"\0" + message[1:],
        message.replace(b"\3\xff\xff\xff", b"\3\xff\xff\x7f"),
    ):
        with pytest.raises(CheckFailure):
            parse_tpm_attest(changed)


def test_the_key_of_a_vtpm_stands_once_in_what_the_processor_signed() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    modulus = key.public_key().public_numbers().n.to_bytes(256, "big")
    own = {"kid": "HCLAkPub", "kty": "RSA", "e": "AQAB", "n": base64.urlsafe_b64encode(modulus).decode().rstrip("=")}
    message, pcrs = b"a quote", [bytes(32)] * 24
    signature = key.sign(message, padding.PKCS1v15(), SHA256())
    attest = TpmAttest(b"", sha256(b"".join(pcrs)).digest())

    def said(*keys: object, data: bytes | None = None, report_data: bytes | None = None) -> str:
        runtime = json.dumps({"keys": keys}).encode() if data is None else data
        signed = sha256(runtime).digest() + bytes(32) if report_data is None else report_data
        quote = TpmQuote(message, signature, pcrs)
        try:
            return check_vtpm(HclReport(b"", "SEV_SNP", runtime), quote, attest, signed).detail
        except CheckFailure as failure:
            return f"{failure.code}: {failure}"

    named = "the processor vouches for the key of the vTPM, which signed these PCRs"
    unnamed = "cpu_vtpm_invalid: the runtime data does not name the key of a vTPM"
    no_key = "cpu_vtpm_invalid: the key of the vTPM is not RSA of 2,048 bits"
    assert said({"kid": "HCLEkPub"}, own) == named
    assert said() == said(own, own) == said({**own, "kty": "EC"}) == said({**own, "e": "Aw"}) == unnamed
    assert said({**own, "n": 1}) == said(data=b"[]") == said(data=b'{"keys":{}}') == said("HCLAkPub", None) == unnamed
    assert said({**own, "n": "AQAB"}) == said({**own, "n": "="}) == said({**own, "n": "A" * 400}) == no_key
    assert said(data=b"{") == said(data=b"\xff") == "cpu_vtpm_invalid: the runtime data is not JSON"
    n: str = own["n"]
    other = {**own, "n": n[:9] + ("A" if n[9] == "B" else "B") + n[10:]}
    assert said(other) == "cpu_vtpm_invalid: the vTPM's signature does not verify under its key"
    for report_data in (bytes(64), sha256(json.dumps({"keys": [own]}).encode()).digest() + bytes(31) + b"\1"):
        assert said(own, report_data=report_data) == "cpu_vtpm_invalid: the processor signed other runtime data"
    pcrs[0] = b"\1" * 32
    assert said(own) == "cpu_vtpm_invalid: the PCRs are not those of the quote"

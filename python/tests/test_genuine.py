"""The table: every genuine vector of NVIDIA's, what a right verifier says of it, and what ours says."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from countersign_verify import create_collateral
from countersign_verify.attestation import compare_token_with_reports
from countersign_verify.common.checks import CheckFailure, VerificationError
from countersign_verify.evidence import appraise_evidence, verify_evidence
from countersign_verify.gpu.devices import Without
from countersign_verify.gpu.nvidia import rim_roots
from countersign_verify.gpu.rim.rim import verify_rim
from countersign_verify.gpu.spdm.opaque import parse_opaque
from countersign_verify.gpu.spdm.report import parse_report
from countersign_verify.policy.options import Clocks, Expected, VerificationReport
from countersign_verify.token import parse_token
from countersign_verify.x509 import parse_pem
from countersign_verify.x509.ocsp import parse_ocsp_response
from genuine import FOLDER, genuine, needs_genuine

pytestmark = needs_genuine

H100 = "h100-550.90.07"
NEITHER: dict[str, Any] = {"without": Without(reference_values=True, revocation=True)}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


# The genuine H100's endorsements were never valid at one instant.
CLOCKS = Clocks(
    report=at("2025-09-01"), rim=at("2025-09-01"), ocsp=at("2025-08-21T12:00"), rim_ocsp=at("2025-10-24T12:00")
)


def text(path: str) -> str:
    return genuine(f"nvidia/{path}").decode()


def report_bytes(path: str) -> bytes:
    """A report kept as bytes or as hex text."""
    data = genuine(f"nvidia/{path}")
    return bytes.fromhex(data.decode()) if path.endswith(".hex") else data


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def evidence_of(arch: str, folder: str, report: str | bytes) -> dict[str, str]:
    """In NVIDIA's form."""
    data = report_bytes(f"{folder}/{report}") if isinstance(report, str) else report
    chain = b64(genuine(f"nvidia/{folder}/chain.pem"))
    return {"arch": arch, "evidence": b64(data), "certificate": chain, "nonce": data[4:36].hex()}


def h100() -> dict[str, str]:
    return evidence_of("HOPPER", H100, "report.bin")


def h100_rims() -> dict[str, str]:
    """By id: the file's name is the id."""
    names = ("NV_GPU_DRIVER_GH100_550.90.07", "NV_GPU_VBIOS_1010_0200_882_96009F0001")
    return {name: text(f"{H100}/{name}.xml") for name in names}


def ocsp_responses() -> list[bytes]:
    files = sorted((FOLDER / "nvidia" / H100 / "ocsp").iterdir())
    assert len(files) == 7
    return [base64.b64decode(file.read_bytes()) for file in files]


def with_all() -> dict[str, Any]:
    return {"clocks": CLOCKS, "collateral": create_collateral(rims=h100_rims(), ocsp=ocsp_responses())}


def with_545(vbios: str) -> dict[str, Any]:
    rims = [text("h100-545.00/Driver_RIM_test_no_gpu.swidtag"), text(f"h100-545.00/{vbios}")]
    return {
        "without": Without(revocation=True),
        "clocks": Clocks(rim=at("2024-01-01")),
        "collateral": create_collateral(rims=rims),
    }


def statuses(report: VerificationReport) -> dict[str, str]:
    return {check.name: check.code or check.status for check in report.checks}


def detail(report: VerificationReport, name: str) -> str:
    return next(check.detail for check in report.checks if check.name == name)


@dataclass(frozen=True)
class Row:
    name: str
    evidence: list[tuple[str, str, str]] | str
    """Architecture, folder and report of each device; or a file in NVIDIA's own form."""
    expected: Mapping[str, str]
    """By check; `pass` where nothing is said."""
    level: str
    options: str = "neither"


UNASKED = {"revocation": "skip", "reference_values": "skip", "device_mode": "skip"}
# The report does not say whether there are switches, or those that it names did not sign.
OPEN = {"topology": "skip"}
BROKEN = {"report_signature": "report_signature_invalid", "report_fwid": "skip", **UNASKED, **OPEN}
OF_545 = {"report_fwid": "skip", "revocation": "skip", **OPEN}

TABLE = [
    Row(
        "h100-550.90.07: everything passes, each endorsement at a time at which it was valid",
        [("HOPPER", H100, "report.bin")],
        {},
        "gpu",
        "all",
    ),
    Row(
        "h100-545.00 with its reference values: passes, without a firmware id",
        [("HOPPER", "h100-545.00", "report.hex")],
        OF_545,
        "gpu",
        "1010_0200_882_96005E0001_test_no_gpu.swidtag",
    ),
    Row(
        "h100-545.00 with the production VBIOS RIM of the same id: measurement mismatch",
        [("HOPPER", "h100-545.00", "report.hex")],
        {**OF_545, "reference_values": "measurement_mismatch", "device_mode": "skip"},
        "none",
        "1010_0200_882_96005E0001_PROD.swidtag",
    ),
    Row(
        "h100-535.86.09 with a broken signature: the signature fails, the chain passes",
        [("HOPPER", "h100-535.86.09", "report-invalid-signature.hex")],
        BROKEN,
        "none",
    ),
    Row("h100-590.12 in NVIDIA's own form: passes", "h100-590.12/evidence.json", {**UNASKED, **OPEN}, "gpu"),
    Row(
        "blackwell-575.32: passes, its firmware id under the other OID",
        [("BLACKWELL", "blackwell-575.32", "report.hex")],
        {**UNASKED, **OPEN},
        "gpu",
    ),
    Row(
        "switch-ls10: passes",
        [("LS10", "switch-ls10", "report.hex")],
        {**UNASKED, **OPEN, "report_fwid": "skip"},
        "none",
    ),
    Row(
        "switch-ls10 with a broken signature: the signature fails, the chain passes",
        [("LS10", "switch-ls10", "report-invalid-signature.hex")],
        BROKEN,
        "none",
    ),
]


def options_of(row: Row) -> dict[str, Any]:
    if row.options == "all":
        return with_all()
    return NEITHER if row.options == "neither" else with_545(row.options)


def appraised(row: Row) -> VerificationReport:
    given = text(row.evidence) if isinstance(row.evidence, str) else [evidence_of(*one) for one in row.evidence]
    return appraise_evidence(given, **options_of(row))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_the_verdict_on_genuine_evidence_is(row: Row) -> None:
    report = appraised(row)
    got = statuses(report)
    assert got == {name: row.expected.get(name, "pass") for name in got}
    assert set(row.expected) <= set(got)
    assert report.valid is not any("_" in one for one in row.expected.values())
    assert report.level == row.level


def test_names_the_indices_that_do_not_match() -> None:
    assert "1, 2, 3, 9" in detail(appraised(TABLE[2]), "reference_values")


def own_form(given: dict[str, Any]) -> dict[str, Any]:
    """In our form, which states no nonce."""
    return {"arch": given["arch"], "report": given["evidence"], "certificate_chain": given["certificate"]}


@pytest.mark.parametrize("form", [h100, lambda: own_form(h100())], ids=["NVIDIA's", "ours"])
def test_bare_evidence_is_of_the_nonce_that_is_expected(form: Callable[[], dict[str, Any]]) -> None:
    nonce = h100()["nonce"]
    for expected, valid in ((nonce, True), (nonce.upper(), True), ("ab" * 32, False)):
        report = appraise_evidence([form()], **{**NEITHER, "expected": Expected(nonce=expected)})
        codes = {check.code for check in report.checks if check.status == "fail"}
        assert codes == (set() if valid else {"report_nonce_mismatch"})
        assert not valid or report.claims.nonce == nonce


@pytest.mark.parametrize("form", [h100, lambda: own_form(h100())], ids=["NVIDIA's", "ours"])
def test_bare_evidence_may_have_more_members_but_none_twice(form: Callable[[], dict[str, Any]]) -> None:
    more = {"name": "GPU 0", "version": {"minor": 1}, **form()}
    options = {**NEITHER, "expected": Expected(nonce=h100()["nonce"])}
    text_of = json.dumps([more])
    for given in ([more], text_of):
        assert appraise_evidence(given, **options).valid
    for twice in (
        text_of.replace('"name":', '"name": "GPU 1", "name":'),
        text_of.replace('"minor":', '"min\\u006fr": 1, "minor":'),
        text_of.replace('"arch":', '"arch": "HOPPER", "arch":'),
    ):
        assert statuses(appraise_evidence(twice, **options))["form"] == "not_an_attestation"


def test_says_what_a_person_cares_about() -> None:
    report = verify_evidence([h100()], **with_all())
    device = report.claims.devices[0]
    assert (device.kind, device.arch, device.model) == ("gpu", "HOPPER", "GH100 A01 GSP BROM")
    assert (device.driver, device.vbios) == ("550.90.07", "96.00.9F.00.01")
    assert report.claims.simulated is False
    assert "genuine NVIDIA GPU" in " ".join(report.proven)
    ppcie = appraise_evidence(text("h100-590.12/evidence.json"), **NEITHER)
    assert ppcie.claims.devices[0].mode == "ppcie"
    assert "a GPU is behind protected PCIe, and no switch signed" in " ".join(ppcie.not_proven)


def test_by_default_nothing_is_left_out_and_each_endorsement_has_its_own_verdict() -> None:
    report = appraise_evidence([h100()])
    offline = statuses(report)
    assert offline["revocation"] == "revocation_unavailable"
    assert offline["reference_values"] == "rim_unavailable"
    assert offline["device_mode"] == "skip"
    assert (report.valid, report.incomplete) == (False, True)
    collateral = create_collateral(rims=h100_rims(), ocsp=ocsp_responses())
    late = appraise_evidence([h100()], collateral=collateral, at=at("2027-01-01"))
    assert statuses(late)["revocation"] == "revocation_invalid"
    assert statuses(late)["reference_values"] == "rim_signer_expired"
    assert late.incomplete is False


def test_a_single_flipped_bit_of_the_report_fails_by_its_signature_or_where_it_cannot_be_read() -> None:
    given = h100()
    data = base64.b64decode(given["evidence"])
    codes = set()
    for position in range(0, len(data), 89):
        changed = bytearray(data)
        changed[position] ^= 0x10
        report = appraise_evidence([{**given, "evidence": b64(bytes(changed))}], **NEITHER)
        assert (position, report.valid) == (position, False)
        codes |= {check.code for check in report.checks if check.code is not None}
    assert "report_signature_invalid" in codes
    assert codes <= {"fwid_mismatch", "report_malformed", "report_nonce_mismatch", "report_signature_invalid"}


def test_one_genuine_device_more_with_a_broken_signature_refuses_all() -> None:
    second = evidence_of("HOPPER", "h100-535.86.09", "report-invalid-signature.hex")
    report = appraise_evidence([h100(), second], **NEITHER)
    failed = [(check.name, check.code, check.device) for check in report.checks if check.status == "fail"]
    assert failed == [("report_signature", "report_signature_invalid", 1)]


def test_several_genuine_devices_pass_together_each_on_its_own_nonce() -> None:
    devices = [
        h100(),
        evidence_of("HOPPER", "h100-545.00", "report.hex"),
        evidence_of("LS10", "switch-ls10", "report.hex"),
        evidence_of("BLACKWELL", "blackwell-575.32", "report.hex"),
    ]
    report = verify_evidence(devices, **NEITHER)
    assert (report.level, len(report.claims.devices), report.claims.nonce) == ("gpu", 4, None)


def test_a_switch_that_the_gpus_do_not_name_and_a_gpu_in_another_mode_refuse_the_whole() -> None:
    behind = json.loads(text("h100-590.12/evidence.json"))[0]
    for other, why in (
        (evidence_of("LS10", "switch-ls10", "report.hex"), "device 1 is a switch that the GPUs do not name"),
        (h100(), "device 1 is in another mode than device 0"),
    ):
        report = appraise_evidence([behind, other], **NEITHER)
        failed = [(check.name, check.code, check.detail) for check in report.checks if check.status == "fail"]
        assert failed == [("topology", "topology_mismatch", why)]


def test_a_gpu_names_its_switches_by_the_ids_that_they_state_turned_round() -> None:
    # Of one machine: the second report has a broken signature, and its list is read all the same.
    own = parse_report(report_bytes("switch-ls10/report.hex")).opaque
    gpu = parse_report(report_bytes("h100-535.86.09/report-invalid-signature.hex")).opaque
    assert own.fabric_ids is not None
    assert own.gpu_ids is not None
    assert gpu.fabric_ids is not None
    assert (len(own.fabric_ids), len(own.gpu_ids), len(gpu.fabric_ids)) == (1, 8, 18)
    assert len(set(gpu.fabric_ids)) == 4
    assert bytes.fromhex(own.fabric_ids[0])[::-1].hex() in gpu.fabric_ids


def test_the_newer_opaque_data_is_read() -> None:
    opaque = parse_opaque(report_bytes("opaque-nvdaod/nvdaod_opaque_hopper_620.12.hex"))
    assert opaque.format == "NVDAOD"
    assert opaque.driver_version is not None
    assert opaque.vbios_version is not None
    assert opaque.svns


def test_the_same_device_twice_is_not_two() -> None:
    report = appraise_evidence([h100(), h100()], **NEITHER)
    failed = next(check for check in report.checks if check.status == "fail")
    assert (failed.code, failed.device) == ("evidence_malformed", 1)


def test_a_stated_nonce_that_is_another_fails_and_so_does_one_that_is_not_stated() -> None:
    other = "00" * 32
    assert (
        statuses(appraise_evidence([{**h100(), "nonce": other}], **NEITHER))["report_nonce"] == "report_nonce_mismatch"
    )
    assert not appraise_evidence([h100()], **NEITHER, expected=Expected(nonce=other)).valid
    unstated = h100()
    nonce = unstated.pop("nonce")
    assert statuses(appraise_evidence([unstated], **NEITHER))["report_nonce"] == "report_nonce_mismatch"
    assert appraise_evidence([unstated], **NEITHER, expected=Expected(nonce=nonce)).valid


@pytest.mark.parametrize(
    ("file", "same"),
    [
        ("nvtrust-local-claims-2.0", True),
        ("nvtrust-local-claims-3.0", True),
        ("nras-es384-detached-eat", True),
        ("nvattest-local-alg-none", False),
    ],
)
def test_a_genuine_token_says_of_the_device_what_its_report_says(file: str, same: bool) -> None:
    devices = appraise_evidence([h100()], **NEITHER).claims.devices
    token = parse_token(text(f"tokens/{file}.json"))
    if same:
        assert "driver, VBIOS and ueid" in getattr(compare_token_with_reports(token, devices), "detail", "")
        return
    with pytest.raises(CheckFailure) as failure:
        compare_token_with_reports(token, devices)
    assert failure.value.code == "token_report_mismatch"


def test_nvidias_own_ocsp_responder_certified_by_the_device_authority_is_no_device() -> None:
    responder = parse_ocsp_response(ocsp_responses()[0]).certificates[0]
    above = [one for one in parse_pem(text(f"{H100}/chain.pem")) if one.subject == responder.issuer]
    pem = "".join(
        f"-----BEGIN CERTIFICATE-----\n{b64(one.der)}\n-----END CERTIFICATE-----\n" for one in (responder, *above)
    )
    report = appraise_evidence([{**h100(), "certificate": b64(pem.encode())}], **NEITHER, at=CLOCKS.ocsp)
    assert statuses(report)["report_chain"] == "chain_invalid"
    assert "not one of a device" in detail(report, "report_chain")


def test_a_report_does_not_pass_under_another_chain_nor_as_another_architecture() -> None:
    b = evidence_of("HOPPER", "h100-545.00", "report.hex")
    swapped = statuses(appraise_evidence([{**h100(), "certificate": b["certificate"]}], **NEITHER))
    assert (swapped["report_signature"], swapped["report_chain"]) == ("report_signature_invalid", "pass")
    renamed = statuses(appraise_evidence([{**h100(), "arch": "BLACKWELL"}], **NEITHER))
    assert renamed["report_chain"] == "chain_invalid"


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("failure_duplicate_index.xml", "rim_malformed"),
        ("failure_empty_payload.xml", "rim_malformed"),
        ("failure_invalid_alternatives.xml", "rim_malformed"),
        ("failure_invalid_size.xml", "rim_malformed"),
        ("failure_missing_hash.xml", "rim_malformed"),
        ("failure_missing_x509_data.xml", "rim_malformed"),
        ("failure_no_payload.xml", "rim_malformed"),
        ("incorrect_signature_driver_rim.xml", "rim_signature_invalid"),
    ],
)
def test_nvidias_broken_reference_values_are_refused(file: str, code: str) -> None:
    with pytest.raises(CheckFailure) as failure:
        verify_rim(text(f"rim-broken/{file}"), rim_roots(), at("2025-09-01"))
    assert failure.value.code == code


def test_a_folder_of_kept_files_is_collateral_like_any_other(tmp_path: Path) -> None:
    from countersign_verify.cli.collateral_folder import Folders, Services, collateral_from

    for name in ("rim", "ocsp"):
        (tmp_path / name).mkdir()
    for name, document in h100_rims().items():
        (tmp_path / "rim" / f"{name}.xml").write_text(document)
    for number, response in enumerate(ocsp_responses()):
        kept = response if number % 2 else base64.encodebytes(response)
        (tmp_path / "ocsp" / f"{number}.der").write_bytes(kept)
    nobody = Services(online=False, rim_url=None, ocsp_url=None, on_fetch=None)
    collateral = collateral_from(Folders(tmp_path, None, ()), nobody)
    report = verify_evidence([h100()], clocks=CLOCKS, collateral=collateral)
    assert {check.status for check in report.checks} == {"pass"}
    elsewhere = replace(CLOCKS, rim_ocsp=at("2025-08-21T12:00"))
    with pytest.raises(VerificationError, match="revocation"):
        verify_evidence([h100()], clocks=elsewhere, collateral=collateral)

"""What neither our vectors nor genuine evidence show: chains, responders, reference values and machines with one thing wrong."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from countersign_verify.common.checks import CheckFailure, Skipped
from countersign_verify.gpu.nvidia import DeviceIdentity, device_of
from countersign_verify.gpu.reference_values import ReferenceValues, compare
from countersign_verify.gpu.rim.rim import Manifest, Measurement, Rim, verify_rim
from countersign_verify.gpu.rim.xml import Element, is_named, parse_xml
from countersign_verify.gpu.rim.xml_signature import canonical_document, canonical_subset
from countersign_verify.gpu.spdm.opaque import OpaqueData
from countersign_verify.gpu.spdm.report import Report
from countersign_verify.gpu.topology import DeviceClaims, VerifiedDevice, check_topology, left_open
from countersign_verify.policy.options import Context, VerifyOptions, read_options
from countersign_verify.x509 import Certificate, ChainError, parse_certificate, parse_pem, verify_chain
from countersign_verify.x509.ocsp import parse_ocsp_response
from countersign_verify.x509.revocation import verify_ocsp

PARTS = Path(__file__).resolve().parents[2] / "vectors" / "parts"
AT = datetime(2025, 6, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
RESPONDER_AUTH = x509.ObjectIdentifier("1.3.6.1.4.1.412.274.3")


def code_of(call: Callable[[], object]) -> str:
    """The code of the failure, or `fine`."""
    try:
        call()
    except CheckFailure as failure:
        return failure.code
    except ChainError as error:
        return error.reason
    return "fine"


# An authority for tests.


class Authority:
    def __init__(self, name: str, above: Authority | None = None, **options: Any) -> None:
        """`options` are those of `issued`; an authority with nobody above it signs itself."""
        self.key = ec.generate_private_key(ec.SECP384R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.made = (above or self)._make(self.name, self.key, **options)
        self.certificate = parse_certificate(self.made.public_bytes(Encoding.DER))

    def _make(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        issuer: x509.Name | None = None,
        ca: bool = True,
        path_length: int | None = None,
        usages: Sequence[str] | None = ("key_cert_sign",),
        purposes: Sequence[x509.ObjectIdentifier] | None = None,
        not_before: datetime = AT - 100 * DAY,
        not_after: datetime = AT + 100 * DAY,
        key_ids: tuple[bytes, bytes] | None = None,
        critical: str | None = None,
        signed_by: ec.EllipticCurvePrivateKey | None = None,
        hash_algorithm: SHA256 | SHA384 | None = None,
    ) -> x509.Certificate:
        """`key_ids`: the subject's and its authority's. `critical`: the OID of an extension."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer or self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length if ca else None), critical=True)
        )
        if usages is not None:
            names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
            more = ("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
            usage = x509.KeyUsage(**{one: one in usages for one in (*names, *more)})
            builder = builder.add_extension(usage, critical=True)
        if purposes is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if key_ids is not None:
            builder = builder.add_extension(x509.SubjectKeyIdentifier(key_ids[0]), critical=False)
            authority = x509.AuthorityKeyIdentifier(key_ids[1], None, None)
            builder = builder.add_extension(authority, critical=False)
        if critical is not None:
            extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(critical), b"\x05\x00")
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(signed_by or self.key, hash_algorithm or SHA384())


ROOT = Authority("Test root")
MIDDLE = Authority("Test middle", ROOT)
STRANGER = Authority("Test root")


def leaf_of(above: Authority, name: str = "Test leaf", **options: Any) -> Authority:
    return Authority(name, above, **{"ca": False, "usages": ("digital_signature",), **options})


def chain_of(*authorities: Authority) -> list[Certificate]:
    return [one.certificate for one in authorities]


# Chains.


def test_a_right_chain_is_verified_with_and_without_its_root() -> None:
    leaf = leaf_of(MIDDLE)
    path = chain_of(leaf, MIDDLE, ROOT)
    assert verify_chain(path, [ROOT.certificate], AT) == path
    assert verify_chain(path[:2], [STRANGER.certificate, ROOT.certificate][1:], AT) == path


def under(middle: Authority, **of_leaf: Any) -> list[Certificate]:
    return chain_of(leaf_of(middle, **of_leaf), middle, ROOT)


CHAINS: Mapping[str, tuple[Callable[[], Sequence[Certificate]], str]] = {
    "no certificate": (list, "invalid"),
    "a root alone": (lambda: chain_of(ROOT), "invalid"),
    "another root of the same name": (lambda: chain_of(leaf_of(STRANGER), STRANGER), "untrusted_root"),
    "a leaf of the other root": (lambda: chain_of(leaf_of(STRANGER)), "invalid"),
    "no authority above": (lambda: under(Authority("M", ROOT, ca=False)), "invalid"),
    "an authority that may not certify": (lambda: under(Authority("M", ROOT, usages=["crl_sign"])), "invalid"),
    "an authority without stated usages": (lambda: under(Authority("M", ROOT, usages=None)), "fine"),
    "a path that is long enough": (lambda: under(Authority("M", ROOT, path_length=0)), "fine"),
    "a certificate by SHA-256": (lambda: under(Authority("M", ROOT, hash_algorithm=SHA256())), "fine"),
    "signed by another key": (lambda: under(MIDDLE, signed_by=STRANGER.key), "invalid"),
    "of another issuer": (lambda: under(MIDDLE, issuer=STRANGER.name), "invalid"),
    "a critical extension": (lambda: under(MIDDLE, critical="1.2.3.4"), "invalid"),
    "a critical firmware id": (lambda: under(MIDDLE, critical="2.23.133.5.4.1"), "fine"),
    "a critical extension above": (lambda: under(Authority("M", ROOT, critical="1.2.3.4")), "invalid"),
    "an expired leaf": (lambda: under(MIDDLE, not_after=AT - timedelta(seconds=1)), "expired"),
    "a leaf that ends now": (lambda: under(MIDDLE, not_after=AT), "fine"),
    "a leaf that begins now": (lambda: under(MIDDLE, not_before=AT), "fine"),
    "a leaf of tomorrow": (lambda: under(MIDDLE, not_before=AT + DAY), "expired"),
    "an expired authority": (lambda: under(Authority("M", ROOT, not_after=AT - DAY)), "expired"),
    "expired and wrongly signed": (lambda: under(MIDDLE, signed_by=ROOT.key, not_after=AT - DAY), "invalid"),
    "nine certificates": (lambda: chain_of(*[leaf_of(MIDDLE)] * 7, MIDDLE, ROOT), "invalid"),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_with(name: str) -> None:
    make, verdict = CHAINS[name]
    chain = make()
    assert code_of(lambda: verify_chain(chain, [ROOT.certificate], AT)) == verdict
    # What was found right is kept, what was found wrong is not.
    assert code_of(lambda: verify_chain(chain, [ROOT.certificate], AT)) == verdict


def test_a_path_that_is_longer_than_an_authority_allows_is_refused() -> None:
    short = Authority("Short", ROOT, path_length=0)
    below = Authority("Below", short)
    chain = chain_of(leaf_of(below), below, short)
    assert code_of(lambda: verify_chain(chain, [ROOT.certificate], AT)) == "invalid"


def test_key_identifiers_count_where_both_are_stated() -> None:
    middle = Authority("M", ROOT, key_ids=(b"middle", b"root"))
    right = chain_of(leaf_of(middle, key_ids=(b"leaf", b"middle")), middle)
    wrong = chain_of(leaf_of(middle, key_ids=(b"leaf", b"another")), middle)
    assert code_of(lambda: verify_chain(right, [ROOT.certificate], AT)) == "fine"
    assert code_of(lambda: verify_chain(wrong, [ROOT.certificate], AT)) == "invalid"


@pytest.mark.parametrize(
    ("name", "options", "arch", "verdict"),
    [
        ("GH100 A01 GSP FMC LF", {}, "HOPPER", "fine"),
        ("GH100 A01 GSP FMC LF", {}, "hopper", "fine"),
        ("GH100 A01 GSP FMC LF", {}, "BLACKWELL", "chain_invalid"),
        ("GB202 A01 FSP FMC LF", {}, "BLACKWELL", "fine"),
        ("LS_10 A01 FSP FMC LF", {}, "LS10", "fine"),
        ("AD102 A01", {}, "HOPPER", "chain_invalid"),
        ("XGH100", {}, "HOPPER", "chain_invalid"),
        ("GH100 A01", {"ca": True}, "HOPPER", "chain_invalid"),
        ("GH100 A01", {"purposes": [RESPONDER_AUTH]}, "HOPPER", "fine"),
        ("GH100 A01", {"purposes": [ExtendedKeyUsageOID.OCSP_SIGNING]}, "HOPPER", "chain_invalid"),
    ],
)
def test_a_certificate_is_a_devices(name: str, options: dict[str, Any], arch: str, verdict: str) -> None:
    path = chain_of(leaf_of(MIDDLE, name, **options), MIDDLE, ROOT)
    assert code_of(lambda: device_of(path, arch)) == verdict


# Revocation.

SUBJECT = leaf_of(MIDDLE)
RESPONDER = leaf_of(MIDDLE, "Responder", purposes=[ExtendedKeyUsageOID.OCSP_SIGNING])


def response(
    responder: Authority = RESPONDER,
    *,
    about: Authority = SUBJECT,
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD,
    reason: x509.ReasonFlags | None = None,
    at: datetime = AT,
    until: datetime | None = AT + DAY,
    carried: Sequence[Authority] | None = None,
    hash_algorithm: SHA256 | SHA384 | None = None,
) -> bytes:
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=about.made,
            issuer=MIDDLE.made,
            algorithm=hash_algorithm or SHA384(),
            cert_status=status,
            this_update=at,
            next_update=until,
            revocation_time=at if status is ocsp.OCSPCertStatus.REVOKED else None,
            revocation_reason=reason,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, responder.made)
        .certificates([one.made for one in ([responder] if carried is None else carried)])
    )
    return builder.sign(responder.key, SHA384()).public_bytes(Encoding.DER)


def with_another_signature(given: bytes) -> bytes:
    signature = parse_ocsp_response(given).signature
    return given.replace(signature, signature[:-1] + bytes([signature[-1] ^ 1]))


def responder_of(above: Authority, **options: Any) -> Authority:
    return leaf_of(above, "Responder", **{"purposes": [ExtendedKeyUsageOID.OCSP_SIGNING], **options})


REVOKED = ocsp.OCSPCertStatus.REVOKED
SOON = timedelta(minutes=5)
RESPONSES: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "good": (response, "fine"),
    "good, by the issuer itself": (lambda: response(MIDDLE), "fine"),
    "good, by SHA-256": (lambda: response(hash_algorithm=SHA256()), "fine"),
    "about another certificate": (lambda: response(about=leaf_of(MIDDLE)), "revocation_invalid"),
    "with another signature": (lambda: with_another_signature(response()), "revocation_invalid"),
    "without its responder": (lambda: response(carried=[MIDDLE]), "revocation_invalid"),
    "of another authority's responder": (lambda: response(responder_of(ROOT)), "revocation_invalid"),
    "of a responder that names another issuer": (
        lambda: response(responder_of(MIDDLE, issuer=ROOT.name)),
        "revocation_invalid",
    ),
    "of a responder that somebody else signed": (
        lambda: response(responder_of(MIDDLE, signed_by=ROOT.key)),
        "revocation_invalid",
    ),
    "of a certificate for another purpose": (
        lambda: response(responder_of(MIDDLE, purposes=[ExtendedKeyUsageOID.SERVER_AUTH])),
        "revocation_invalid",
    ),
    "of a certificate for any purpose": (lambda: response(responder_of(MIDDLE, purposes=None)), "revocation_invalid"),
    "of a responder that may not sign": (
        lambda: response(responder_of(MIDDLE, usages=["crl_sign"])),
        "revocation_invalid",
    ),
    "of a responder with a critical extension": (
        lambda: response(responder_of(MIDDLE, critical="1.2.3.4")),
        "revocation_invalid",
    ),
    "of an expired responder": (lambda: response(responder_of(MIDDLE, not_after=AT - DAY)), "revocation_invalid"),
    "of a responder of tomorrow": (lambda: response(responder_of(MIDDLE, not_before=AT + DAY)), "revocation_invalid"),
    "of five minutes ahead": (lambda: response(at=AT + SOON), "fine"),
    "of later": (lambda: response(at=AT + SOON + timedelta(seconds=1)), "revocation_invalid"),
    "that ends now": (lambda: response(at=AT - DAY, until=AT), "fine"),
    "that ended": (lambda: response(at=AT - DAY, until=AT - timedelta(seconds=1)), "revocation_invalid"),
    "without an end, of today": (lambda: response(at=AT - DAY, until=None), "fine"),
    "without an end, older than a day": (
        lambda: response(at=AT - DAY - timedelta(seconds=1), until=None),
        "revocation_invalid",
    ),
    "revoked": (lambda: response(status=REVOKED), "certificate_revoked"),
    "on hold": (lambda: response(status=REVOKED, reason=x509.ReasonFlags.certificate_hold), "certificate_revoked"),
    "unknown": (lambda: response(status=ocsp.OCSPCertStatus.UNKNOWN), "revocation_unavailable"),
    "a refusal": (
        lambda: ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.TRY_LATER).public_bytes(
            Encoding.DER
        ),
        "revocation_unavailable",
    ),
    "no response": (lambda: b"", "revocation_invalid"),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_about_revocation_is(name: str) -> None:
    make, verdict = RESPONSES[name]
    given = make()
    for _ in range(2):
        assert code_of(lambda: verify_ocsp(given, SUBJECT.certificate, MIDDLE.certificate, AT)) == verdict


def test_a_response_that_is_kept_is_held_against_the_time_of_each_check() -> None:
    given = response()
    certificate, issuer = SUBJECT.certificate, MIDDLE.certificate
    assert code_of(lambda: verify_ocsp(given, certificate, issuer, AT)) == "fine"
    assert code_of(lambda: verify_ocsp(given, certificate, issuer, AT + 2 * DAY)) == "revocation_invalid"
    assert code_of(lambda: verify_ocsp(given, certificate, ROOT.certificate, AT)) == "revocation_invalid"


# Reference values.

DRIVER_XML = (PARTS / "NV_GPU_DRIVER_GH100_000.00.00.xml").read_text(encoding="utf-8")
RIM_ROOTS = parse_pem((PARTS / "rim-root.pem").read_text(encoding="utf-8"))
OWN_ROOT = Authority("RIM root")


def signature_in(root: Element) -> Element:
    found = (one for one in root.children if isinstance(one, Element) and one.local == "Signature")
    return next(found)


def signed_anew(xml: str, signer: Authority, *above: Authority) -> str:
    """The same document with another signer."""
    certificates = "".join(
        f"<ds:X509Certificate>{base64.b64encode(one.certificate.der).decode()}</ds:X509Certificate>"
        for one in (signer, *above)
    )
    xml = re.sub(r"(<ds:X509Data>).*?(</ds:X509Data>)", rf"\g<1>{certificates}\g<2>", xml, flags=re.DOTALL)
    root = parse_xml(xml)
    digest = hashlib.sha384(canonical_document(root, signature_in(root)).encode()).digest()
    xml = _with_text(xml, "DigestValue", digest)
    root = parse_xml(xml)
    signature = signature_in(root)
    info = next(
        one for one in signature.children if isinstance(one, Element) and is_named(one, one.namespace, "SignedInfo")
    )
    r, s = decode_dss_signature(signer.key.sign(canonical_subset(info, [root, signature]).encode(), ec.ECDSA(SHA384())))
    return _with_text(xml, "SignatureValue", r.to_bytes(48, "big") + s.to_bytes(48, "big"))


def _with_text(xml: str, name: str, value: bytes) -> str:
    return re.sub(rf"(<ds:{name}>)[^<]*", rf"\g<1>{base64.b64encode(value).decode()}", xml)


SIGNERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "right": ({}, "fine"),
    "for code": ({"purposes": [ExtendedKeyUsageOID.CODE_SIGNING]}, "fine"),
    "for another purpose": ({"purposes": [ExtendedKeyUsageOID.OCSP_SIGNING]}, "rim_chain_invalid"),
    "an authority": ({"ca": True}, "rim_signature_invalid"),
    "one that may not sign": ({"usages": ["key_cert_sign"]}, "rim_signature_invalid"),
    "expired": ({"not_after": AT - DAY}, "rim_signer_expired"),
    "signed by somebody else": ({"signed_by": ROOT.key}, "rim_chain_invalid"),
}


@pytest.mark.parametrize("name", SIGNERS)
def test_the_signer_of_a_rim_is(name: str) -> None:
    options, verdict = SIGNERS[name]
    xml = signed_anew(DRIVER_XML, leaf_of(OWN_ROOT, "Signer", **options), OWN_ROOT)
    for _ in range(2):
        assert code_of(lambda: verify_rim(xml, [OWN_ROOT.certificate], AT)) == verdict


DSIG = 'xmlns:ds="http://www.w3.org/2000/09/xmldsig#"'


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("<ds:Signature ", f"<ds:Object {DSIG}/>"),
        ("</SoftwareIdentity>", f"<ds:Signature {DSIG}></ds:Signature>"),
        ("</ds:Signature>", "<ds:Object/>"),
        ("</ds:KeyInfo>", "<ds:KeyName/>"),
        ("<ds:Signature ", "<Payload/>"),
        ("<ds:Signature ", "<Meta/>"),
    ],
)
def test_a_rim_that_holds_more_than_it_may_is_refused_however_it_is_signed(before: str, added: str) -> None:
    signer = leaf_of(OWN_ROOT, "Signer")
    assert code_of(lambda: verify_rim(signed_anew(DRIVER_XML, signer, OWN_ROOT), [OWN_ROOT.certificate], AT)) == "fine"
    changed = DRIVER_XML.replace(before, added + before, 1)
    assert changed != DRIVER_XML
    assert code_of(lambda: verify_rim(signed_anew(changed, signer, OWN_ROOT), [OWN_ROOT.certificate], AT)) == (
        "rim_malformed"
    )


def test_a_rim_is_read_as_text_and_as_bytes_and_not_under_another_root() -> None:
    rim = verify_rim(DRIVER_XML, RIM_ROOTS, AT)
    assert rim == verify_rim(DRIVER_XML.encode(), RIM_ROOTS, AT)
    assert (rim.manifest.kind, rim.manifest.version) == ("driver", "000.00.00")
    assert code_of(lambda: verify_rim(DRIVER_XML, [OWN_ROOT.certificate], AT)) == "rim_chain_invalid"
    assert code_of(lambda: verify_rim(" " * (1024 * 1024 + 1), RIM_ROOTS, AT)) == "rim_malformed"


OPAQUE = OpaqueData(
    format="legacy",
    version=1,
    driver_version="550.90.07",
    vbios_version="96.00.9F.00.01",
    project=None,
    project_sku=None,
    chip_sku=None,
    chip=None,
    fwid=None,
    nvdec0_disabled=None,
    protected_pcie=None,
    pass_through=None,
    fabric_ids=None,
    gpu_ids=None,
    measurement_counts=None,
    svns={},
)
HOPPER = DeviceIdentity("gpu", "HOPPER", "GH100", "GH100 A01 GSP BROM", "1")


def rim(version: str, measurements: Mapping[int, str], *, product: str = "GH100", **more: Any) -> Rim:
    """`measurements`: the one value of each, by index; a `-` before it: not active."""
    values = {
        index: Measurement(active=not value.startswith("-"), values=[value.removeprefix("-")], name="", size=1)
        for index, value in measurements.items()
    }
    manifest = Manifest(
        id="", version=version, kind="driver", product=product, edition="", manufacturer_id="", measurements=values,
        **{"minimum_svns": {}, **more},
    )  # fmt: skip
    return Rim(manifest, [])


DRIVER = rim("550.90.07", {0: "aa", 1: "bb", 2: "-cc"})
VBIOS = rim("96.00.9f.00.01", {2: "cc", 35: "dd"})
BLOCKS = {1: "aa", 2: "bb", 3: "cc", 36: "dd"}


def compared(
    driver: Rim | None = DRIVER,
    vbios: Rim = VBIOS,
    blocks: Mapping[int, str] = BLOCKS,
    identity: DeviceIdentity = HOPPER,
    **opaque: Any,
) -> str:
    report = Report(b"", "", blocks, replace(OPAQUE, **opaque), b"", b"")
    context: Context = read_options(VerifyOptions())
    try:
        result = compare(ReferenceValues(driver, vbios, []), identity, report, context)
    except CheckFailure as failure:
        return f"{failure.code}: {failure.message}"
    return f"{result.matched} matched, {list(result.skipped)} left out"


def test_measurements_that_have_their_reference_values_match() -> None:
    assert compared() == "4 matched, [] left out"
    assert compared(blocks={**BLOCKS, 9: "ff"}) == "4 matched, [] left out"
    assert compared(driver=None) == "2 matched, [] left out"


def test_each_measurement_that_differs_is_named_by_its_index() -> None:
    wrong = "measurement_mismatch: the device does not match "
    assert compared(blocks={**BLOCKS, 1: "00", 2: ""}) == f"{wrong}driver RIM indices 0, 1"
    assert compared(blocks={1: "aa", 2: "bb"}) == f"{wrong}VBIOS RIM indices 2, 35"
    assert compared(driver=rim("550.90.07", {0: "-aa"})) == f"{wrong}nothing in the driver RIM"


def test_a_disabled_decoder_need_not_match_and_counts_where_it_does() -> None:
    without = {**BLOCKS, 36: ""}
    assert compared(blocks=without, nvdec0_disabled=True) == "3 matched, [35] left out"
    assert compared(nvdec0_disabled=True) == "4 matched, [] left out"
    assert "VBIOS RIM indices 35" in compared(blocks=without, nvdec0_disabled=False)
    assert "VBIOS RIM indices 35" in compared(blocks=without)


def test_reference_values_of_another_version_or_chip_are_refused() -> None:
    assert compared(driver_version="550.90.08") == (
        "rim_mismatch: the driver RIM is for '550.90.07', the report has '550.90.08'"
    )
    assert compared(driver_version=None) == "rim_mismatch: the report names no driver version"
    assert "the VBIOS RIM is for" in compared(vbios_version="96.00.9F.00.02")
    another = rim("550.90.07", {0: "aa", 1: "bb"}, product="GH200")
    assert compared(driver=another) == "rim_mismatch: the driver RIM is for 'GH200', the report is of 'GH100'"
    blackwell = replace(HOPPER, arch="BLACKWELL", chip="GB100")
    assert compared(driver=another, identity=blackwell) == "4 matched, [] left out"


def test_two_rims_that_claim_the_same_are_refused() -> None:
    assert compared(driver=rim("550.90.07", {0: "aa", 2: "cc"})) == ("rim_mismatch: driver and VBIOS RIM both claim 2")
    bounded: dict[str, Any] = {"minimum_svns": {40: 1}}
    driver = rim("550.90.07", {0: "aa"}, **bounded)
    vbios = rim("96.00.9F.00.01", {2: "cc"}, **bounded)
    assert compared(driver, vbios) == "rim_mismatch: driver and VBIOS RIM both claim opaque type 40"


def test_security_versions_must_be_stated_and_high_enough() -> None:
    driver = rim("550.90.07", {0: "aa"}, minimum_svns={40: 3})
    for svns, fine in (({}, False), ({40: 2}, False), ({41: 9}, False), ({40: 3}, True), ({40: 4}, True)):
        verdict = compared(driver, svns=svns)
        assert ("security version 3 of opaque type 40" not in verdict) is fine


# Machines.


def switch_id(number: int) -> str:
    return f"203eb31ad9ed00{number:02x}"


def link_to(number: int) -> str:
    return bytes.fromhex(switch_id(number))[::-1].hex()


def gpu_id(number: int) -> str:
    return f"40b9c6b3d748fd{number:02x}"


NOWHERE = "00" * 8
LINKS = tuple(map(link_to, range(1, 5)))
PORTS = tuple(map(gpu_id, range(1, 9)))


def gpu(
    mode: Any = "ppcie", links: tuple[str, ...] | None = (*LINKS, NOWHERE, *LINKS), **opaque: Any
) -> VerifiedDevice:
    claims = DeviceClaims("gpu", "HOPPER", "GH100", "GH100", "1", None, None, mode, None)
    return VerifiedDevice(None, claims, replace(OPAQUE, fabric_ids=links, **opaque), simulated=False)


def switch(number: int, own: tuple[str, ...] | None = None, ports: tuple[str, ...] | None = PORTS) -> VerifiedDevice:
    claims = DeviceClaims("switch", "LS10", "LS10", "LS10", "1", None, None, None, None)
    ids = (switch_id(number),) if own is None else own
    return VerifiedDevice(None, claims, replace(OPAQUE, fabric_ids=ids, gpu_ids=ports), simulated=False)


def gpus(count: int) -> list[VerifiedDevice]:
    return [gpu() for _ in range(count)]


def switches(*numbers: int) -> list[VerifiedDevice]:
    return [switch(number) for number in numbers]


def alone(mode: Any = None, protected: bool | None = False) -> VerifiedDevice:
    return gpu(mode, None, protected_pcie=protected)


OTHER = tuple(map(link_to, range(101, 105)))
PASS = "pass: "
SKIP = "skip: "
FAIL = "topology_mismatch: "
MACHINES: Mapping[str, tuple[Sequence[VerifiedDevice], str]] = {
    "eight GPUs and four switches": (
        [*gpus(8), *switches(1, 2, 3, 4)],
        f"{PASS}8 GPUs in one mode, behind protected PCIe, and each of the 4 switches that they name",
    ),
    "the same the other way round": ([*switches(4, 3, 2, 1), *gpus(8)], f"{PASS}8 GPUs in one mode, behind"),
    "one GPU of one mode": ([alone("spt")], f"{PASS}one GPU, not behind protected PCIe"),
    "two GPUs of an older driver": ([alone(), alone()], f"{PASS}2 GPUs in one mode, not behind protected PCIe"),
    "any one switch": ([*gpus(8), switch(3)], f"{SKIP}the GPUs name 4 switches, and 1 signed"),
    "eight GPUs alone": (gpus(8), f"{SKIP}a GPU is behind protected PCIe, and no switch signed"),
    "seven GPUs": ([*gpus(7), *switches(1, 2, 3, 4)], f"{SKIP}the switches name 8 GPUs, and 7 signed"),
    "one of each": (
        [*gpus(1), *switches(1)],
        f"{SKIP}the GPUs name 4 switches, and 1 signed; the switches name 8 GPUs, and 1 signed",
    ),
    "a GPU that says nothing": (
        [alone(protected=None)],
        f"{SKIP}not every report says whether its GPU is behind protected PCIe",
    ),
    "a switch alone": ([switch(1)], f"{SKIP}no GPU signed"),
    "a switch beside one GPU": (
        [alone("spt"), switch(1)],
        f"{SKIP}no GPU says that it is behind protected PCIe",
    ),
    "no device": ([], f"{SKIP}no GPU signed"),
    "another mode": ([alone("spt"), alone("mpt")], f"{FAIL}device 1 is in another mode than device 0"),
    "one of them protected": ([*gpus(1), alone()], f"{FAIL}device 1 is in another mode than device 0"),
    "the other of them protected": ([alone(protected=None), *gpus(1)], f"{FAIL}device 1 is in another mode"),
    "a mode that one does not state": (
        [alone("spt"), alone(protected=None)],
        f"{SKIP}not every report says whether its GPU is behind protected PCIe",
    ),
    "a switch that no GPU names": ([*gpus(8), switch(9)], f"{FAIL}device 8 is a switch that the GPUs do not name"),
    "a switch that is nobody": ([*gpus(8), switch(1, (NOWHERE,))], f"{FAIL}device 8 is a switch that the GPUs"),
    "two switches of one id": ([*gpus(8), *switches(1, 1)], f"{FAIL}device 9 says that it is a switch that signed"),
    "a switch without an id": ([*gpus(8), switch(1, ())], f"{FAIL}device 8 does not say which switch it is"),
    "a switch of two ids": (
        [*gpus(8), switch(1, (switch_id(1), switch_id(2)))],
        f"{FAIL}device 8 does not say which switch it is",
    ),
    "a GPU at other switches": (
        [gpu(), gpu(links=OTHER), *switches(1)],
        f"{FAIL}device 1 is at other switches than device 0",
    ),
    "a GPU at one switch less": ([gpu(), gpu(links=LINKS[:3])], f"{FAIL}device 1 is at other switches than device 0"),
    "a GPU that names no switches": (
        [gpu(), gpu(links=None), *switches(1)],
        f"{FAIL}device 1 does not say at which switches it is",
    ),
    "other GPUs at a switch": (
        [*gpus(8), switch(1), switch(2, ports=(*PORTS[:7], gpu_id(99)))],
        f"{FAIL}device 9 has other GPUs at its ports than device 8",
    ),
    "more GPUs than a switch names": (
        [*gpus(8), switch(1, ports=(*PORTS[:7], NOWHERE))],
        f"{FAIL}the switches name 7 GPUs, and 8 signed",
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_of(name: str) -> None:
    devices, expected = MACHINES[name]
    try:
        outcome = check_topology(devices)
    except CheckFailure as failure:
        verdict = f"{failure.code}: {failure.message}"
    else:
        verdict = f"{SKIP}{outcome.skip}" if isinstance(outcome, Skipped) else f"{PASS}{outcome.detail}"
        assert isinstance(outcome, Skipped) is (left_open(devices) != [])
    assert verdict.startswith(expected)

"""Collateral from services that answer rightly, wrongly for a while, or not at all, over our own vectors."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from countersign_verify import Roots, appraise_attestation, create_collateral
from countersign_verify.cli.collateral_folder import Folders, Services, collateral_from, fetching_into
from countersign_verify.cli.input import UsageError
from countersign_verify.gpu.collateral import CollateralSource, ServiceError, fetch_nras_keys
from countersign_verify.x509 import sequence
from countersign_verify.x509.der import read_one
from countersign_verify.x509.ocsp import parse_ocsp_response

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
AT = datetime(2025, 6, 1, 12, tzinfo=timezone.utc)
DRIVER = "NV_GPU_DRIVER_GH100_000.00.00"
VBIOS = "NV_GPU_VBIOS_SIM0_SIM0_SIM_53494D0001"
SUBJECTS = ("brom", "provisioner", "identity", "rim-signer", "rim-intermediate", "rim-ca")


def part(name: str) -> str:
    return (VECTORS / "parts" / name).read_text(encoding="utf-8")


def response_about(subject: str) -> bytes:
    return base64.b64decode(part(f"ocsp-{subject}.b64"))


def value(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    head = [size] if size < 0x80 else [0x81, size] if size < 0x100 else [0x82, size >> 8, size & 0xFF]
    return bytes([tag, *head]) + content


def with_nonce(response: bytes, nonce: bytes) -> bytes:
    """The same response to a request with this nonce, signed anew by its responder."""
    parsed = parse_ocsp_response(response)
    keys = [load_pem_private_key(file.read_bytes(), None) for file in (VECTORS / "keys").glob("responder-*.pem")]
    key = next(key for key in keys if spki_of(key) == parsed.certificates[0].spki)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    basic = sequence(read_one(sequence(read_one(sequence(read_one(response))[1].content))[1].content))
    octets = value(0x04, value(0x04, nonce))
    extension = value(0x30, value(0x06, bytes.fromhex("2b0601050507300102")), octets)
    data = value(0x30, *(one.whole for one in sequence(basic[0])), value(0xA1, value(0x30, extension)))
    signature = value(0x03, b"\x00", key.sign(data, ec.ECDSA(SHA384())))
    signed = value(0x30, data, basic[1].whole, signature, basic[3].whole)
    body = value(0x30, value(0x06, bytes.fromhex("2b0601050507300101")), value(0x04, signed))
    return value(0x30, value(0x0A, b"\x00"), value(0xA0, body))


def spki_of(key: Any) -> bytes:
    encoded: bytes = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


class World:
    """NVIDIA's services, and who asked them for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.clock = AT
        self.documents = {name: part(f"{name}.xml") for name in (DRIVER, VBIOS)}
        self.answering: Callable[[bytes, bytes], bytes] = with_nonce
        """From a response that is right and the nonce of the request to what is answered."""
        self._about = {}
        for subject in SUBJECTS:
            response = response_about(subject)
            data = read_one(parse_ocsp_response(response).signed)
            listed = next(one for one in sequence(data) if one.tag == 0x30)
            self._about[sequence(sequence(listed)[0])[0].whole] = (subject, response)

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            name = request.url.path.removeprefix("/v1/rim/")
            self.asked.append(name)
            if name not in self.documents:
                return httpx.Response(404)
            return httpx.Response(200, json={"rim": base64.b64encode(self.documents[name].encode()).decode()})
        subject, response = next(one for cert_id, one in self._about.items() if cert_id in request.content)
        self.asked.append(subject)
        return httpx.Response(200, content=self.answering(response, request.content[-32:]))

    def collateral(self, **more: Any) -> CollateralSource:
        client = httpx.Client(transport=httpx.MockTransport(self.handle))
        return create_collateral(client=client, clock=lambda: self.clock, **more)

    def verdict(self, collateral: CollateralSource) -> tuple[str, list[str]]:
        """The first failed check's code, and what was asked for on the way to it."""
        self.asked.clear()
        report = appraise_attestation(
            json.loads(part("attestation.json")),
            at=AT,
            simulated_root=part("device-root.pem"),
            roots=Roots(rim=part("rim-root.pem")),
            collateral=collateral,
        )
        failed = next((check.code for check in report.checks if check.status == "fail"), None)
        return failed or "valid", sorted(self.asked)


@pytest.fixture
def world() -> World:
    return World()


ALL = sorted((DRIVER, VBIOS, *SUBJECTS))


def test_what_was_fetched_and_passed_is_kept(world: World) -> None:
    collateral = world.collateral()
    assert world.verdict(collateral) == ("valid", ALL)
    assert world.verdict(collateral) == ("valid", [])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text: text.replace("SignatureValue>", "SignatureValue>AAAA"), "rim_malformed"),
        (lambda text: text.replace('colloquialVersion="', 'colloquialVersion="9'), "rim_signature_invalid"),
        (lambda text: part(f"{VBIOS}.xml"), "rim_mismatch"),
        (lambda text: part("rim-driver-another-version.xml"), "rim_mismatch"),
        (lambda text: part("rim-driver-another-value.xml"), "measurement_mismatch"),
    ],
)
def test_a_document_that_a_check_refused_is_asked_for_again(
    world: World, change: Callable[[str], str], code: str
) -> None:
    collateral = world.collateral()
    right = dict(world.documents)
    world.documents[DRIVER] = change(right[DRIVER])
    assert world.verdict(collateral)[0] == code
    code_again, asked = world.verdict(collateral)
    assert (code_again, DRIVER in asked) == (code, True)
    world.documents = right
    assert world.verdict(collateral)[0] == "valid"
    assert world.verdict(collateral) == ("valid", [])


@pytest.mark.parametrize(
    "answering",
    [
        lambda response, nonce: response,
        lambda response, nonce: with_nonce(response, bytes(32)),
        lambda response, nonce: with_nonce(response, nonce)[:-1],
    ],
    ids=["without the nonce", "to another request", "that breaks off"],
)
def test_a_response_about_revocation_is_refused_and_asked_for_again(
    world: World, answering: Callable[[bytes, bytes], bytes]
) -> None:
    collateral = world.collateral()
    world.answering = answering
    assert world.verdict(collateral) == ("revocation_invalid", ALL)
    assert world.verdict(collateral) == ("revocation_invalid", sorted(SUBJECTS))
    world.answering = with_nonce
    assert world.verdict(collateral) == ("valid", sorted(SUBJECTS))
    assert world.verdict(collateral) == ("valid", [])


def test_a_reference_value_is_kept_for_a_day(world: World) -> None:
    collateral = world.collateral()
    world.verdict(collateral)
    world.clock += timedelta(days=1)
    assert world.verdict(collateral) == ("valid", [])
    world.clock += timedelta(milliseconds=1)
    assert world.verdict(collateral) == ("valid", sorted((DRIVER, VBIOS)))


def test_what_is_handed_in_is_used_where_it_holds_and_nobody_is_asked(world: World) -> None:
    ocsp = [response_about(subject) for subject in SUBJECTS]
    documents = list(world.documents.values())
    assert world.verdict(world.collateral(rims=documents, ocsp=ocsp)) == ("valid", [])
    assert world.verdict(world.collateral(rims=world.documents, ocsp=[b"x", *ocsp])) == ("valid", [])


def test_what_is_handed_in_and_holds_no_longer_is_asked_for_anew(world: World) -> None:
    ocsp = [response_about(subject) for subject in SUBJECTS]
    ocsp[1] = response_about("provisioner-stale")
    online = world.collateral(rims=world.documents, ocsp=ocsp)
    assert world.verdict(online) == ("valid", ["provisioner"])
    offline = create_collateral(rims=world.documents, ocsp=ocsp)
    assert world.verdict(offline) == ("revocation_invalid", [])


def test_the_newest_response_counts_and_of_two_equally_new_ones_the_one_that_is_not_good(world: World) -> None:
    good = [response_about(subject) for subject in SUBJECTS]
    for extra, code in (
        ("brom-revoked", "certificate_revoked"),
        ("brom-unknown", "revocation_unavailable"),
        ("provisioner-stale", "valid"),
    ):
        for ocsp in ([*good, response_about(extra)], [response_about(extra), *good]):
            assert world.verdict(create_collateral(rims=world.documents, ocsp=ocsp))[0] == code


def test_more_responses_than_any_caller_needs_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 4096"):
        create_collateral(ocsp=[b""] * 4097)


def _slow() -> Iterator[bytes]:
    for _ in range(20):
        time.sleep(0.05)
        yield b" "


@pytest.mark.parametrize(
    "response",
    [
        lambda: httpx.Response(404),
        lambda: httpx.Response(500),
        lambda: httpx.Response(200, content=b"<html>"),
        lambda: httpx.Response(200, content=b"null"),
        lambda: httpx.Response(200, content=b'{"rim": 1}'),
        lambda: httpx.Response(200, content=b'{"rim": "!"}'),
        lambda: httpx.Response(200, content=b"[" * 5_000),
        lambda: httpx.Response(200, content=b"\xff\xfe"),
        lambda: httpx.Response(200, content=bytes(2 * 1024 * 1024 + 1)),
        lambda: httpx.Response(200, content=_slow()),
        lambda: httpx.Response(302, headers={"location": "/again"}),
    ],
    ids=["404", "500", "html", "null", "number", "base64", "deep", "utf8", "large", "slow", "redirects"],
)
def test_a_service_that_does_not_answer_as_it_should_leaves_reference_values_unavailable(
    world: World, response: Callable[[], httpx.Response]
) -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda request: response()))
    ocsp = [response_about(subject) for subject in SUBJECTS]
    collateral = create_collateral(client=client, ocsp=ocsp, timeout_seconds=0.2)
    began = time.monotonic()
    assert world.verdict(collateral)[0] == "rim_unavailable"
    assert time.monotonic() - began < 10


def test_a_network_that_fails_is_the_reason_that_is_given(world: World) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host")

    collateral = create_collateral(client=httpx.Client(transport=httpx.MockTransport(fail)))
    report = appraise_attestation(
        json.loads(part("attestation.json")),
        at=AT,
        simulated_root=part("device-root.pem"),
        roots=Roots(rim=part("rim-root.pem")),
        collateral=collateral,
    )
    failed = {check.name: check for check in report.checks if check.status == "fail"}
    assert failed["reference_values"].code == "rim_unavailable"
    assert failed["revocation"].code == "revocation_unavailable"
    assert "no route to host" in failed["reference_values"].detail
    assert report.incomplete


def test_no_service_is_asked_about_a_report_whose_signature_is_wrong(world: World) -> None:
    attestation = json.loads(part("attestation.json"))
    report = bytearray(base64.b64decode(attestation["evidence"][0]["report"]))
    report[-1] ^= 1
    attestation["evidence"][0]["report"] = base64.b64encode(report).decode()
    collateral = world.collateral()
    verdict = appraise_attestation(
        attestation,
        at=AT,
        simulated_root=part("device-root.pem"),
        roots=Roots(rim=part("rim-root.pem")),
        collateral=collateral,
    )
    assert [check.code for check in verdict.checks if check.status == "fail"] == ["report_signature_invalid"]
    assert world.asked == []


# A folder of kept files.


def test_what_is_fetched_into_a_folder_serves_a_check_without_a_network(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda: plain(transport=httpx.MockTransport(world.handle)))
    kept: list[Path] = []
    asked: list[str] = []
    online = Services(online=True, rim_url="http://rim.test/", ocsp_url=None, on_fetch=asked.append)
    assert world.verdict(fetching_into(tmp_path, online, kept.append)) == ("valid", ALL)
    assert len(asked) == len(ALL)
    assert asked[0] == f"http://rim.test/v1/rim/{DRIVER}"
    names = sorted(path.relative_to(tmp_path).as_posix() for path in kept)
    assert names[-2:] == [f"rim/{DRIVER}.xml", f"rim/{VBIOS}.xml"]
    assert [name.split("/")[0] for name in names[:-2]] == ["ocsp"] * 6
    offline = Services(online=False, rim_url=None, ocsp_url=None, on_fetch=None)
    assert world.verdict(collateral_from(Folders(tmp_path, None, ()), offline)) == ("valid", [])
    rims_alone = Folders(None, tmp_path / "rim", tuple((tmp_path / "ocsp").iterdir()))
    assert world.verdict(collateral_from(rims_alone, offline)) == ("valid", [])


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    offline = Services(online=False, rim_url=None, ocsp_url=None, on_fetch=None)
    with pytest.raises(UsageError, match="no such file or folder"):
        collateral_from(Folders(tmp_path / "none", None, ()), offline)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        fetching_into(tmp_path / "file", offline, lambda path: None)


# NVIDIA's keys.


def keys_from(response: httpx.Response) -> Any:
    client = httpx.Client(transport=httpx.MockTransport(lambda request: response))
    return fetch_nras_keys("https://nras.test/keys", client=client)


def test_nvidias_keys_are_what_its_service_answers() -> None:
    assert keys_from(httpx.Response(200, json={"keys": [{"kid": "a"}]})) == {"keys": [{"kid": "a"}]}


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (httpx.Response(404), "nras.test has no keys"),
        (httpx.Response(503), "nras.test answered 503"),
        (httpx.Response(200, json=[]), "nras.test answered without keys"),
        (httpx.Response(200, content=b" " * (1024 * 1024 + 1)), "more than 1048576 bytes"),
    ],
)
def test_without_keys_the_service_is_named(response: httpx.Response, why: str) -> None:
    with pytest.raises(ServiceError, match=why):
        keys_from(response)

"""Tokens: genuine ones of each shape, and ones that are made here and fail by one thing alone."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from countersign_verify import NRAS_KEYS_URL, CheckFailure
from countersign_verify.token import check_token_digests, parse_token, verify_token_signature
from countersign_verify.token.digests import nvtrust_digest_text
from countersign_verify.token.signature import TokenKeys
from genuine import genuine, needs_genuine

NRAS = "https://nras.attestation.nvidia.com"
AT = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
NOW = int(AT.timestamp())
H100_NONCE = "931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb"


def read(name: str) -> str:
    return genuine(f"nvidia/tokens/{name}.json").decode()


@needs_genuine
@pytest.mark.parametrize("claims", ["2.0", "3.0"])
def test_a_genuine_token_of_the_python_verifier(claims: str) -> None:
    token = parse_token(read(f"nvtrust-local-claims-{claims}"))
    assert (token.kind, token.issuer, token.overall_result) == ("nvtrust", "LOCAL_GPU_VERIFIER", True)
    assert token.nonces == (H100_NONCE, H100_NONCE)
    (device,) = token.devices
    assert (device.name, device.verifier, device.driver) == ("GPU-0", "LOCAL_GPU_CLAIMS", "550.90.07")
    assert (device.vbios, device.hwmodel, device.measres) == ("96.00.9F.00.01", "GH100 A01 GSP BROM", "success")
    assert (device.secure_boot, device.debug) == (True, "disabled")
    assert check_token_digests(token) == "1 submodule has the digest that the overall JWT names"
    assert verify_token_signature(token, TokenKeys(), AT).signature == "self-asserted"


@needs_genuine
def test_a_genuine_token_of_nvattest() -> None:
    printed = read("nvattest-local-alg-none")
    for text in (printed, json.dumps(json.loads(printed)["detached_eat"])):
        token = parse_token(text)
        assert (token.kind, token.issuer, token.overall_result) == ("nvattest", "NVAT-LOCAL-VERIFIER", True)
        assert check_token_digests(token) == "1 submodule has the digest that the overall JWT names"
        assert verify_token_signature(token, TokenKeys(), AT).signature == "self-asserted"


@needs_genuine
def test_a_genuine_token_of_nras_wants_the_key_that_signed_it() -> None:
    token = parse_token(read("nras-es384-detached-eat"))
    assert (token.kind, token.issuer, token.overall_result) == ("nras", NRAS, True)
    assert check_token_digests(token) == "1 submodule has the digest that the overall JWT names"
    assert code(read("nras-es384-detached-eat")) == "token_key_unavailable"
    jwt = json.loads(read("nras-es384-detached-eat"))[0][1]
    for text in (jwt, f"{jwt}\n", json.dumps(jwt)):
        bare = parse_token(text)
        assert (bare.kind, bare.devices, bare.nonces) == ("jwt", (), (H100_NONCE,))
        assert check_token_digests(bare) == "a bare JWT, without the 1 submodules it names"


# Made tokens.

Claims = dict[str, Any]


@dataclass(frozen=True)
class Alg:
    header: Claims
    sign: Callable[[bytes], bytes]


class Key:
    def __init__(self, kid: str) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        numbers = self._key.public_key().public_numbers()
        x, y = (base64url(one.to_bytes(48, "big")) for one in (numbers.x, numbers.y))
        self.jwk = {"kty": "EC", "crv": "P-384", "kid": kid, "x": x, "y": y}
        self.alg = Alg({"alg": "ES384", "kid": kid}, self._sign)

    def _sign(self, data: bytes) -> bytes:
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(SHA384())))
        return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def jwt(claims: Claims, alg: Alg) -> str:
    signed = f"{base64url(json.dumps(alg.header).encode())}.{base64url(json.dumps(claims).encode())}"
    return f"{signed}.{base64url(alg.sign(signed.encode()))}"


def written(claims: bytes) -> str:
    """Unsigned, with a payload that no encoder writes."""
    header = base64url(b'{"alg":"none"}')
    return f"{header}.{base64url(claims)}."


def hs256(secret: str) -> Alg:
    return Alg({"alg": "HS256"}, lambda data: hmac.digest(secret.encode(), data, "sha256"))


NONE = Alg({"alg": "none"}, lambda _: b"")
NVIDIA = Key("nv-eat-kid-test-1")
KEYS = {"keys": [NVIDIA.jwk]}
TIMES: Claims = {"exp": NOW + 3600, "nbf": NOW}


def device(iss: object, **more: object) -> Claims:
    return {"iss": iss, "eat_nonce": "cd" * 32, "ueid": "1", "measres": "success", **TIMES, **more}


def detached(iss: object, alg: Alg, overall: Claims | None = None, device_claims: Claims | None = None) -> list[Any]:
    part = jwt({**device(iss), **(device_claims or {})}, alg)
    digest = hashlib.sha256(part.encode()).hexdigest()
    claims = {"iss": iss, "eat_nonce": "cd" * 32, "x-nvidia-overall-att-result": True, **TIMES, **(overall or {})}
    claims["submods"] = {"GPU-0": ["DIGEST", ["SHA-256", digest]]}
    return [["JWT", jwt(claims, alg)], {"GPU-0": part}]


def nested(parts: Claims, envelope: Alg | None = None) -> str:
    outer = jwt({"iss": "NV-Attestation-SDK"}, envelope or hs256("notasecret"))
    return json.dumps([["JWT", outer], parts])


def nras(alg: Alg = NVIDIA.alg, overall: Claims | None = None, device_claims: Claims | None = None) -> str:
    return json.dumps(detached(NRAS, alg, overall, device_claims))


def code(token: str, keys: TokenKeys | None = None, at: datetime = AT) -> str:
    """Of the failure, or who signed."""
    try:
        return verify_token_signature(parse_token(token), keys or TokenKeys(nras=KEYS), at).signature
    except CheckFailure as failure:
        return failure.code


def test_a_token_of_nvidia_is_valid_for_its_time() -> None:
    for seconds, expected in ((0, "nvidia-signed"), (3659, "nvidia-signed"), (3661, "token_expired")):
        assert code(nras(), at=AT + timedelta(seconds=seconds)) == expected
    assert code(nras(), at=AT - timedelta(seconds=59)) == "nvidia-signed"
    assert code(nras(), at=AT - timedelta(seconds=61)) == "token_expired"
    for exp in (None, "9999999999", True, 1, -1e308):
        assert code(nras(overall={"exp": exp})) == "token_expired"
        assert code(nras(device_claims={"exp": exp})) == "token_expired"
    assert code(nras(overall={"exp": 1e308})) == "nvidia-signed"
    assert code(nras(overall={"nbf": "0"})) == "token_expired"
    assert code(nras(overall={"nbf": None})) == "token_expired"


def test_a_token_of_another_issuer_is_refused_in_any_of_its_parts() -> None:
    for iss in (f"{NRAS}/", f"{NRAS}.example", "NVAT-LOCAL-VERIFIER", "", None):
        assert code(nras(overall={"iss": iss})) == "token_issuer_unknown"
        assert code(nras(device_claims={"iss": iss})) == "token_issuer_unknown"


def test_a_token_under_another_key_is_refused() -> None:
    stranger = Key("nv-eat-kid-test-1")
    assert code(nras(stranger.alg)) == "token_signature_invalid"
    assert code(nras(), TokenKeys(nras={"keys": [stranger.jwk]})) == "token_signature_invalid"
    assert code(nras(Key("unknown").alg)) == "token_key_unavailable"
    assert code(nras(Alg({"alg": "ES384"}, NVIDIA.alg.sign))) == "token_key_unavailable"
    jwk = NVIDIA.jwk
    broken: list[Any] = [
        {"keys": [{**jwk, "crv": "P-256"}]},
        {"keys": [{**jwk, "kty": "oct"}]},
        {"keys": [{**jwk, "x": "AAAA"}]},
        {"keys": [{**jwk, "x": "\u00e9"}]},
        {"keys": [{**jwk, "y": jwk["x"]}]},
        {"keys": [{"kid": jwk["kid"]}]},
        {"keys": [None, 5]},
        {"keys": "x"},
        {"keys": None},
        {},
        [],
    ]
    for keys in broken:
        assert code(nras(), TokenKeys(nras=keys)) == "token_key_unavailable"


def test_a_signature_that_was_changed_is_refused() -> None:
    (_, overall), parts = detached(NRAS, NVIDIA.alg)
    part = parts["GPU-0"]

    def changed(text: str) -> str:
        head, _, signature = text.rpartition(".")
        return f"{head}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"

    for one, other in ((changed(overall), part), (overall, changed(part)), (overall.rpartition(".")[0] + ".", part)):
        assert code(json.dumps([["JWT", one], {"GPU-0": other}])) == "token_signature_invalid"
    zeros = f"{overall.rpartition('.')[0]}.{base64url(bytes(96))}"
    assert code(json.dumps([["JWT", zeros], {"GPU-0": part}])) == "token_signature_invalid"


def test_keys_are_fetched_once_where_those_at_hand_have_not_the_right_one() -> None:
    asked: list[str] = []

    def fetch(url: str) -> dict[str, Any]:
        asked.append(url)
        return KEYS

    def fails(_: str) -> dict[str, Any]:
        raise OSError("offline")

    assert code(nras(), TokenKeys(fetch_nras=fetch)) == "nvidia-signed"
    assert code(nras(), TokenKeys(nras=KEYS, fetch_nras=fetch)) == "nvidia-signed"
    assert asked == [NRAS_KEYS_URL]
    assert code(nras(), TokenKeys(nras={"keys": []}, fetch_nras=fails)) == "token_key_unavailable"


def test_a_token_in_nvidias_name_without_its_signature_is_refused() -> None:
    for alg in (NONE, hs256("secret"), hs256(json.dumps(NVIDIA.jwk))):
        assert code(nras(alg)) == "token_signature_invalid"
        assert code(jwt(device(NRAS), alg)) == "token_signature_invalid"
        assert code(nested({"REMOTE_GPU_CLAIMS": detached(NRAS, alg)})) == "token_signature_invalid"
    overall, _ = detached(NRAS, NVIDIA.alg)
    assert code(json.dumps([overall, detached("x", NONE)[1]])) == "token_signature_invalid"


def test_a_token_that_anyone_can_make_is_self_asserted() -> None:
    def local(secret: str) -> list[Any]:
        return detached("LOCAL_GPU_VERIFIER", hs256(secret))

    assert code(nested({"LOCAL_GPU_CLAIMS": local("secret")})) == "self-asserted"
    assert code(json.dumps(local("secret"))) == "self-asserted"
    assert code(json.dumps(detached("x", NONE))) == "self-asserted"
    assert code(jwt(device("x"), NONE)) == "self-asserted"
    for refused in (
        nested({"LOCAL_GPU_CLAIMS": local("notasecret")}),
        nested({"LOCAL_GPU_CLAIMS": local("secret")}, hs256("secret")),
        nested({"LOCAL_GPU_CLAIMS": local("secret")}, NONE),
        nested({"LOCAL_GPU_CLAIMS": detached("x", NONE)}),
        f"{jwt(device('x'), NONE)}AAAA",
        json.dumps({"detached_eat": local("secret")}),
        *(jwt(device("x"), Alg({"alg": alg}, NONE.sign)) for alg in ("None", "", "HS384", "RS256", "es384")),
    ):
        assert code(refused) == "token_signature_invalid"


def test_a_token_of_countersign_is_ours_under_our_keys_alone() -> None:
    ours = Key("ours")
    keys = {"keys": [ours.jwk]}
    token = json.dumps(detached("countersign", ours.alg))
    assert parse_token(token).kind == "countersign"
    assert code(token, TokenKeys(countersign=keys)) == "countersign-signed"
    assert code(token, TokenKeys(countersign=keys), AT + timedelta(seconds=4000)) == "token_expired"
    assert code(token, TokenKeys(nras=keys)) == "self-asserted"
    assert code(token, TokenKeys(countersign=KEYS)) == "token_key_unavailable"
    assert code(json.dumps(detached(NRAS, ours.alg)), TokenKeys(countersign=keys)) == "token_key_unavailable"


@pytest.mark.parametrize(
    "token",
    [
        *(
            "",
            "x",
            "a.b",
            "a.b.c.d",
            "..",
            "[]",
            "{}",
            '"x"',
            "[[],{}]",
            '[["JWT","a.b.c"],{}]',
            '[["JWT",1],{"a":"b"}]',
        ),
        jwt({}, NONE),
        jwt({"eat_nonce": ""}, NONE),
        jwt({"eat_nonce": "a" * 1025}, NONE),
        jwt({"eat_nonce": "a", "iss": 1}, NONE),
        jwt({"eat_nonce": "a"}, Alg({"alg": "none", "kid": None}, NONE.sign)),
        jwt({"eat_nonce": "a"}, Alg({"alg": "none", "crit": None}, NONE.sign)),
        jwt({"eat_nonce": "a"}, Alg({}, NONE.sign)),
        jwt({"eat_nonce": "a"}, NONE) + "=",
        "\x1c" + jwt({"eat_nonce": "a"}, NONE),
        written(b'{"eat_nonce":"a","eat_nonce":"a"}'),
        written(b'{"eat_nonce":"a\xff"}'),
        written(b'{"eat_nonce":"a","x":' + b"[" * 17 + b"]" * 17 + b"}"),
        nested({"A": detached("x", NONE), "B": "x"}),
        nested({f"A{i}": detached("x", NONE) for i in range(9)}),
        json.dumps([["JWT", jwt(device("x"), NONE)], {"a b": jwt(device("x"), NONE)}]),
        json.dumps({"detached_eat": detached("x", NONE), "claims": [{}]}),
        json.dumps({"detached_eat": detached("x", NONE), "claims": None}),
    ],
    ids=lambda token: token[:30],
)
def test_what_is_no_token_is_malformed(token: str) -> None:
    with pytest.raises(CheckFailure) as failure:
        parse_token(token)
    assert failure.value.code == "token_malformed"


def test_the_digest_text_is_what_pythons_json_writes() -> None:
    claims = {"a": 'é😀\x7f"\\', "exp": 1, "b": [1.0, {"c": None}], "jti": "x", "nbf": 2, "iat": 3, "d": ""}
    payload = json.dumps(claims, ensure_ascii=False, separators=(",", ":"))
    kept = {name: value for name, value in claims.items() if name not in ("exp", "jti", "nbf", "iat")}
    assert nvtrust_digest_text(payload) == json.dumps(kept)

"""Launch files and the compose files in them: those that are written so, and what is refused of others. And the weights that a caller names."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from countersign_verify.common.checks import CheckFailure, seen, skipped
from countersign_verify.cpu.cpu_options import CpuSoftware
from countersign_verify.cpu.weights import check_weights, read_weights
from countersign_verify.proto.attestation.compose import read_compose
from countersign_verify.proto.attestation.launch import Weights, read_launch
from countersign_verify.proto.strict_json import JsonTextError

IMAGE = "registry.example/one@sha256:" + "ab" * 32
LAUNCH: dict[str, Any] = {
    "version": 1,
    "images": {"backend": IMAGE, "gateway": IMAGE, "sidecar": IMAGE},
    "compose_sha256": "ab" * 32,
    "model": {"name": 'a "model"', "verity_root": None},
    "egress": "none",
    "login": False,
    "operator": None,
}


def test_a_launch_file_is_read_as_it_is_written() -> None:
    def text(**change: object) -> str:
        return json.dumps({**LAUNCH, **change}, separators=(",", ":"))

    images = {"10": IMAGE, "9": IMAGE, **LAUNCH["images"]}
    assert read_launch(text()).images == LAUNCH["images"]
    # ECMAScript has members that are numbers before the others.
    assert list(read_launch(text(images=dict(sorted(images.items(), key=lambda one: len(one[0]))))).images) == [
        "9",
        "10",
        "backend",
        "gateway",
        "sidecar",
    ]
    changes: list[dict[str, object]] = [
        {"version": 2},
        {"images": {"backend": IMAGE, "gateway": IMAGE}},
        {"images": dict(reversed(LAUNCH["images"].items()))},
        {"images": {**LAUNCH["images"], "a b": IMAGE}},
        {"compose_sha256": None},
        {"model": {"name": "é", "verity_root": None}},
        {"model": {"name": "x"}},
        {"egress": ["none"]},
        {"login": True},
        {"operator": "x"},
    ]
    for change in changes:
        with pytest.raises(JsonTextError):
            read_launch(text(**change))
    with pytest.raises(JsonTextError):
        read_launch(text() + "\n")


MEASURED = Path(__file__).parents[2] / "test/support/measured-compose.json"
WEIGHTS = {"name": "Qwen/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218", "verity_root": "cd" * 32}


def launch_of(text: str, **change: object) -> str:
    digest = sha256(text.encode()).hexdigest()
    members = {"version": 2, "compose_sha256": digest, "weights": [WEIGHTS], "login": False, "operator": None}
    return json.dumps({**members, "compose": text, **change}, separators=(",", ":"))


def test_a_launch_file_holds_its_compose_file() -> None:
    compose = MEASURED.read_text()
    launch = read_launch(launch_of(compose))
    assert list(launch.images) == ["backend", "gateway", "ready", "sidecar", "tsm"]
    assert launch.weights == [Weights(**WEIGHTS)]
    assert launch.model == Weights(**WEIGHTS)
    assert read_compose(compose).backend_url == "http://backend:8000/v1"
    changes: list[dict[str, object]] = [
        {"version": 3},
        {"compose_sha256": "ab" * 32},
        {"compose_sha256": None},
        {"compose": {}},
        {"operator": "x"},
        {"weights": []},
        {"weights": {}},
        {"weights": [None]},
        {"weights": [{**WEIGHTS, "verity_root": "cd"}]},
        {"weights": [{**WEIGHTS, "verity_root": "ef" * 32}]},
        {"weights": [{**WEIGHTS, "name": "a\nb@c"}]},
        {"weights": [WEIGHTS, {**WEIGHTS, "name": "a@b"}]},
        {"weights": [WEIGHTS] * 17},
        {"login": True},
        {"more": 1},
    ]
    for change in changes:
        with pytest.raises(JsonTextError):
            read_launch(launch_of(compose, **change))
    with pytest.raises(JsonTextError, match="more than 262144 characters"):
        read_launch(launch_of(compose + " " * 5_000_000))
    with pytest.raises(JsonTextError, match="not JSON"):
        read_launch("")
    assert read_launch(launch_of(compose)) == launch


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("services.gateway.environment.BACKEND_URL", "https://api.example/v1", "has another value in services.gateway"),
        ("services.gateway.environment.BACKEND_URL", None, "has no services.gateway.environment.BACKEND_URL"),
        ("services.gateway.environment.LD_PRELOAD", "x", "may not have services.gateway.environment.LD_PRELOAD"),
        ("services.gateway.environment", [], "has another value in services.gateway.environment"),
        ("services.backend.command", ["org/model"], "has the backend load another model"),
        ("services.backend.command", ["/weights", "--port"], "has another value in services.backend.command than"),
        (
            "services.backend.command",
            ["/weights", "--port", "a b"],
            "has another value in services.backend.command\\[2\\]",
        ),
        (
            "services.backend.command",
            ["/weights", "--trust-remote-code"],
            "has another value in services.backend.command",
        ),
        ("services.backend.command", "/weights", "has another value in services.backend.command"),
        ("services.backend.privileged", True, "may not have services.backend.privileged"),
        ("services.backend.networks", {}, "has no services.backend.networks"),
        ("services.backend.image", None, "has no services.backend.image"),
        ("services.backend.volumes", [{"type": "bind"}], "has another value in services.backend.volumes"),
        ("services.gateway.command", ["sh"], "has another value in services.gateway.command"),
        ("services.tsm.image", f"a@sha256:{'ab' * 32}", "gives tsm another image"),
        ("services.sidecar", None, "has no service sidecar"),
        ("networks.inside.internal", False, "has another value in networks.inside.internal"),
        ("networks.inside", None, "lets the backend out"),
        ("x-a", "$A", "has a variable in x-a"),
        ("x-a", "\u0007", "has other characters than printable ASCII in x-a"),
        ("x-a", {"a b": 1}, "has a name that it may not have in x-a"),
        ("x-a", json.loads("[" * 20 + "]" * 20), "is nested more than 16 deep"),
        ("name", None, "has no name"),
        ("secrets", {}, "may not have secrets"),
    ],
)
def test_a_compose_file_is_held_against_lists(place: str, value: object, reason: str) -> None:
    compose = json.loads(MEASURED.read_text())
    *path, last = place.split(".")
    part = compose
    for name in path:
        part = part[name]
    part[last] = value
    with pytest.raises(JsonTextError, match=f"the compose file {reason}"):
        read_compose(json.dumps(compose))


def test_a_compose_file_without_weights_is_read() -> None:
    compose = json.loads(MEASURED.read_text())
    compose["services"]["backend"]["volumes"] = None
    assert read_compose(json.dumps(compose)).model is None
    twice = MEASURED.read_text()
    with pytest.raises(JsonTextError, match="a member appears twice"):
        read_compose(twice.replace("{", '{"name":"x",', 1))
    for text, reason in (("[]", "is not an object"), ("{", "is not JSON"), ("é", "printable ASCII")):
        with pytest.raises(JsonTextError, match=reason):
            read_compose(text)
    compose["services"]["backend"]["volumes"] = [
        {"type": "bind", "source": f"/run/weights/{root * 32}", "target": target, "read_only": True}
        for root, target in (("cd", "/weights"), ("ef", "/weights/a"))
    ]
    with pytest.raises(JsonTextError, match="one above another"):
        read_compose(json.dumps(compose))


def test_weights_are_compared_by_their_root() -> None:
    own = Weights(**WEIGHTS)
    assert read_weights(own.verity_root) == own.verity_root
    assert read_weights(json.dumps(WEIGHTS)) == read_weights(WEIGHTS) == own.verity_root
    for wrong in (None, "x", {}, {"verity_root": "cd"}, '{"verity_root":"","verity_root":""}', " " * (2**26 + 1)):
        with pytest.raises(TypeError, match=r"^weights: "):
            read_weights(wrong)
    found = CpuSoftware("ab" * 32, None, [own], own, None)
    assert check_weights(own.verity_root, found) == seen(f"{own.name}, by their root")
    assert check_weights(None, None) == skipped("the caller names no weights")
    for expected, software, code in (
        ("ef" * 32, found, "weights_mismatch"),
        (own.verity_root, None, "weights_missing"),
        (own.verity_root, CpuSoftware("ab" * 32, None, None, None, None), "weights_missing"),
    ):
        with pytest.raises(CheckFailure) as raised:
            check_weights(expected, software)
        assert raised.value.code == code

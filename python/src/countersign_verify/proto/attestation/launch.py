"""
The launch file: what runs in a confidential guest. The processor's evidence vouches for its SHA-256
(docs/attestation.md §7.13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ..bytes import is_longer, utf8
from ..strict_json import JsonTextError, ordered_names, parse, stringify, whole_number
from .compose import read_compose


@dataclass(frozen=True)
class Weights:
    """A volume of weights."""

    name: str
    """`ORG/MODEL@REVISION`"""
    verity_root: str
    """Root hash of its dm-verity tree, in hex."""

    def to_dict(self) -> dict[str, str]:
        return {"name": self.name, "verity_root": self.verity_root}


@dataclass(frozen=True)
class Launch:
    """What a launch file says, of either version."""

    images: Mapping[str, str]
    """
    By service, each `name@sha256:<64 hex>`. Of version 2 those of the compose file, of version 1 its writer's words.
    """
    weights: Sequence[Weights] | None
    """None: of version 1, which shows no compose file."""
    model: Weights | None
    """Those that the backend's command loads; None where there are none."""


EGRESS = ("none", "models")
MAX_LAUNCH_CHARACTERS = 256 * 1024
MAX_WEIGHTS = 16
# What a launch of version 1 names at least.
SERVICES = ("gateway", "sidecar", "backend")
MAX_SERVICES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PINNED = re.compile(r"[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}")
MODEL = re.compile(r"[\x20-\x7e]{1,256}")
SHA256 = re.compile(r"[0-9a-f]{64}")
WEIGHTS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}@[A-Za-z0-9._-]{1,64}")


def read_launch(text: str) -> Launch:
    """@raises JsonTextError: the text is not exactly as a launch file is written."""
    if is_longer(text, MAX_LAUNCH_CHARACTERS):
        raise JsonTextError(f"the launch file has more than {MAX_LAUNCH_CHARACTERS} characters")
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise JsonTextError("the launch file is not JSON") from cause
    version = whole_number(value.get("version")) if isinstance(value, dict) else None
    if version == 1:
        return _read_version_1(value, text)
    if version != 2:
        raise _wrong("version")
    return _read_version_2(value, text)


def _wrong(member: str) -> JsonTextError:
    return JsonTextError(f"the launch file's member {member} is not what it must be")


def _as_written(members: Mapping[str, Any], text: str) -> None:
    if stringify(members) != text:
        raise JsonTextError("the launch file has other members, another order, white space or another version")


def _read_version_2(value: Mapping[str, Any], text: str) -> Launch:
    compose = value.get("compose")
    if not _matches(SHA256, value.get("compose_sha256")):
        raise _wrong("compose_sha256")
    weights = _weights_of(value.get("weights"))
    if not _is_digest_or_null(value, "operator"):
        raise _wrong("operator")
    if not isinstance(compose, str):
        raise _wrong("compose")
    members = {
        "version": 2,
        "compose_sha256": value["compose_sha256"],
        "weights": [one.to_dict() for one in weights],
        "login": False,
        "operator": value["operator"],
        "compose": compose,
    }
    _as_written(members, text)
    composed = read_compose(compose)
    if sha256(utf8(compose)).hexdigest() != value["compose_sha256"]:
        raise JsonTextError("the launch file's compose_sha256 is not that of its compose file")
    if any(one.verity_root not in composed.roots for one in weights):
        raise JsonTextError("the launch file names weights that its compose file does not mount")
    if len(weights) != len(composed.roots):
        raise JsonTextError("the compose file mounts weights that the launch file does not name")
    model = next((one for one in weights if one.verity_root == composed.model), None)
    return Launch(composed.images, weights, model)


def _weights_of(value: object) -> Sequence[Weights]:
    """In the order of their names. Names and roots are each written once. @raises JsonTextError"""
    if not isinstance(value, list) or len(value) > MAX_WEIGHTS:
        raise _wrong("weights")
    weights: list[Weights] = []
    for one in value:
        if not isinstance(one, dict) or not _matches(WEIGHTS_NAME, one.get("name")):
            raise _wrong("weights")
        if not _matches(SHA256, one.get("verity_root")):
            raise _wrong("weights")
        weights.append(Weights(one["name"], one["verity_root"]))
    if min(len({one.name for one in weights}), len({one.verity_root for one in weights})) < len(weights):
        raise _wrong("weights")
    return sorted(weights, key=lambda one: one.name)


def _read_version_1(value: Mapping[str, Any], text: str) -> Launch:
    images = value.get("images")
    is_images = (
        isinstance(images, dict)
        and len(images) <= MAX_SERVICES
        and all(NAME.fullmatch(name) and _matches(PINNED, image) for name, image in images.items())
        and all(service in images for service in SERVICES)
    )
    if not is_images or not isinstance(images, dict):
        raise _wrong("images")
    if not _matches(SHA256, value.get("compose_sha256")):
        raise _wrong("compose_sha256")
    model = value.get("model")
    if not isinstance(model, dict) or not _matches(MODEL, model.get("name")):
        raise _wrong("model")
    if not _is_digest_or_null(model, "verity_root"):
        raise _wrong("model")
    if value.get("egress") not in EGRESS:
        raise _wrong("egress")
    if not _is_digest_or_null(value, "operator"):
        raise _wrong("operator")
    # As ECMAScript has them: those whose names are an index first.
    ordered = {name: images[name] for name in ordered_names(dict(sorted(images.items())))}
    members = {
        "version": 1,
        "images": ordered,
        "compose_sha256": value["compose_sha256"],
        "model": {"name": model["name"], "verity_root": model["verity_root"]},
        "egress": value["egress"],
        "login": False,
        "operator": value["operator"],
    }
    _as_written(members, text)
    return Launch(ordered, None, None)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_digest_or_null(value: Mapping[str, Any], name: str) -> bool:
    return name in value and (value[name] is None or _matches(SHA256, value[name]))

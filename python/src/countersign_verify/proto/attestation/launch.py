"""The launch file: which images run in a confidential guest. Its SHA-256 stands where the processor vouches for it
(docs/attestation.md §7.13).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..bytes import is_longer
from ..strict_json import JsonTextError, parse

EGRESS = ("none", "models")
MAX_LAUNCH_CHARACTERS = 256 * 1024
# What a launch names at least.
SERVICES = ("gateway", "sidecar", "backend")
MAX_SERVICES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PINNED = re.compile(r"[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}")
MODEL = re.compile(r"[\x20-\x7e]{1,256}")
SHA256 = re.compile(r"[0-9a-f]{64}")
INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
MAX_INDEX = 2**32 - 2


def read_launch_images(text: str) -> Mapping[str, str]:
    """
    The images by service, each `name@sha256:<64 hex>`. @raises JsonTextError: the text is not exactly as a launch file
    is written.
    """
    if is_longer(text, MAX_LAUNCH_CHARACTERS):
        raise JsonTextError(f"the launch file has more than {MAX_LAUNCH_CHARACTERS} characters")
    launch = parse(text)
    wrong = _wrong_member(launch) if isinstance(launch, dict) else "version"
    if wrong is not None or not isinstance(launch, dict):
        raise JsonTextError(f"the launch file's member {wrong} is not what it must be")
    if _write(launch) != text:
        raise JsonTextError("the launch file has other members, another order, white space or another version")
    images: Mapping[str, str] = {name: launch["images"][name] for name in sorted(launch["images"], key=_place)}
    return images


def _write(launch: Mapping[str, Any]) -> str:
    images = {name: launch["images"][name] for name in sorted(launch["images"], key=_place)}
    model = {"name": launch["model"]["name"], "verity_root": launch["model"]["verity_root"]}
    members = {
        "version": 1,
        "images": images,
        "compose_sha256": launch["compose_sha256"],
        "model": model,
        "egress": launch["egress"],
        "login": False,
        "operator": launch["operator"],
    }
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def _place(name: str) -> tuple[bool, int, str]:
    """ECMAScript's order of members: those that are an index first, by number."""
    is_index = INDEX.fullmatch(name) is not None and int(name) <= MAX_INDEX
    return (not is_index, int(name) if is_index else 0, name)


def _wrong_member(launch: Mapping[str, Any]) -> str | None:
    """The first member that is not what it must be; None where all are."""
    images = launch.get("images")
    is_images = (
        isinstance(images, dict)
        and len(images) <= MAX_SERVICES
        and all(NAME.fullmatch(name) and _matches(PINNED, image) for name, image in images.items())
        and all(service in images for service in SERVICES)
    )
    if not is_images:
        return "images"
    if not _matches(SHA256, launch.get("compose_sha256")):
        return "compose_sha256"
    model = launch.get("model")
    if not isinstance(model, dict) or not _matches(MODEL, model.get("name")):
        return "model"
    if not _is_digest_or_null(model, "verity_root"):
        return "model"
    if launch.get("egress") not in EGRESS:
        return "egress"
    return None if _is_digest_or_null(launch, "operator") else "operator"


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_digest_or_null(value: Mapping[str, Any], name: str) -> bool:
    return name in value and (value[name] is None or _matches(SHA256, value[name]))

"""The weights that the caller expects, and those of the launch file that the guest was started with."""

from __future__ import annotations

from typing import Literal

from ..common.checks import CheckFailure, Passed, Skipped, seen, skipped
from ..proto.attestation.launch import SHA256
from ..proto.bytes import is_longer
from ..proto.strict_json import JsonTextError, duplicate_member, parse
from .cpu_options import CpuSoftware

MAX_CHARACTERS = 64 * 1024 * 1024


def read_weights(value: object) -> str:
    """
    `value`: a verity root of 64 hex digits, or `weights.json` as `countersign weights` writes it: text, or parsed.
    Returns the root. @raises TypeError
    """
    if isinstance(value, str) and SHA256.fullmatch(value) is not None:
        return value
    given = _parsed(value) if isinstance(value, str) else value
    root = given.get("verity_root") if isinstance(given, dict) else None
    if not isinstance(root, str) or SHA256.fullmatch(root) is None:
        raise _unusable(
            "neither a verity root nor an object with a verity_root of 64 lowercase hex digits",
        )
    return root


def _unusable(reason: str) -> TypeError:
    return TypeError(f"weights: {reason}")


def _parsed(text: str) -> object:
    if is_longer(text, MAX_CHARACTERS):
        raise _unusable(f"more than {MAX_CHARACTERS} characters")
    try:
        value: object = parse(text)
    except JsonTextError as cause:
        raise _unusable("neither a verity root nor JSON") from cause
    if duplicate_member(text) is not None:
        raise _unusable("a member appears twice")
    return value


def check_weights(expected: str | None, software: CpuSoftware | None) -> Passed[Literal[True]] | Skipped:
    """
    `expected`: the root; None: the caller names none. `software`: of a guest that is bound to what was signed; None:
    none is proven. @raises CheckFailure: weights_missing, weights_mismatch
    """
    if expected is None:
        return skipped("the caller names no weights")
    if software is None:
        message = "no launch file is proven that could name weights: the level is not measured"
        raise CheckFailure("weights_missing", message)
    model = software.model
    if model is None:
        raise CheckFailure("weights_missing", "the launch file names no weights, or is not at hand")
    if model.verity_root != expected:
        message = f"the launch file's weights are {model.name}, root {model.verity_root}"
        raise CheckFailure("weights_mismatch", message)
    return seen(f"{model.name}, by their root")

"""
Our own vectors: what a file of vectors/cases holds, and how it becomes a call of the verifier. vectors/README.md says
it in prose.
"""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from countersign_verify import Bundles, CpuOptions, Expected, Limits, Policy, Roots, Without, create_collateral
from countersign_verify.policy.options import OptionFields

FOLDER = Path(__file__).resolve().parents[2] / "vectors"


@dataclass(frozen=True)
class Vector:
    name: str
    check: str
    """The check that this is about."""
    given: Any
    """An attestation, the text of something, or bare evidence."""
    is_evidence: bool
    options: OptionFields
    expect: dict[str, Any]


def read_vectors() -> list[Vector]:
    return [_read(file) for file in sorted((FOLDER / "cases").glob("*.json"))]


def _read(file: Path) -> Vector:
    vector = json.loads(file.read_text(encoding="utf-8"))
    if "attestation_file" in vector:
        vector["attestation"] = json.loads(_text(vector["attestation_file"]))
    given = next(vector[name] for name in ("attestation", "text", "evidence") if name in vector)
    options = _options(vector["options"])
    return Vector(file.stem, vector["check"], given, "evidence" in vector, options, vector["expect"])


def _text(path: str) -> str:
    return (FOLDER / path).read_text(encoding="utf-8")


def _options(given: dict[str, Any]) -> OptionFields:
    expected = dict(given.get("expected", {}))
    if "transcript" in expected:
        expected["transcript"] = expected["transcript"].encode()
    served = {name: _text(path) for name, path in given.get("bundle_files", {}).items()}
    simulated, rim = given.get("simulated_root_file"), given.get("rim_root_file")
    return {
        "at": datetime.fromisoformat(given["at"].replace("Z", "+00:00")),
        "simulated_root": None if simulated is None else _text(simulated),
        "roots": Roots(rim=None if rim is None else _text(rim)),
        "collateral": create_collateral(
            rims={name: _text(path) for name, path in given.get("rim_files", {}).items()},
            ocsp=[base64.b64decode(_text(path)) for path in given.get("ocsp_files", [])],
        ),
        "bundles": Bundles(served.get),
        "nras_keys": given.get("nras_keys"),
        "expected": Expected(**expected),
        "without": Without(**given.get("without", {})),
        "policy": Policy(
            max_age_seconds=given.get("max_age_seconds"),
            max_batch=given.get("max_batch"),
            required_checks=given.get("required_checks", ()),
        ),
        "cpu": CpuOptions(**given["cpu"]) if "cpu" in given else None,
        "limits": Limits(max_characters=given.get("max_characters")),
    }

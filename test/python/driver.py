"""
Asks the package `countersign_verify` for verdicts: a question a line, as questions.ts writes it, and an answer a line. An exception that the
package does not document is part of the answer, by its name.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from serving import serve

from countersign_verify.attestation import appraise_attestation
from countersign_verify.common.bundles import Bundles
from countersign_verify.common.release_options import ReleaseOptions
from countersign_verify.cpu.cpu_options import (
    CpuClaims,
    CpuCollateral,
    CpuExpected,
    CpuOptions,
    CpuPolicy,
    CpuRoots,
    CpuSoftware,
    CpuWithout,
    VerifiedSession,
)
from countersign_verify.cpu.verify_cpu import appraise_cpu
from countersign_verify.evidence import appraise_evidence
from countersign_verify.gpu.collateral import create_collateral
from countersign_verify.gpu.devices import Without
from countersign_verify.policy.options import Clocks, Expected, Limits, Policy, Roots
from countersign_verify.proto.attestation.launch import Weights
from countersign_verify.session import appraise_session

Given = Mapping[str, Any]


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda one: f"_{one[0].lower()}", name)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def made(kind: type[Any], given: Given) -> Any:
    """A dataclass of options: names in its own spelling, those that are null left to their defaults."""
    return kind(**{snake(name): value for name, value in given.items() if value is not None})


def decoded(given: Given, name: str) -> Given:
    """The same with one member of base64 as its bytes."""
    return {**given, name: base64.b64decode(given[name])} if given.get(name) is not None else given


def options_of_cpu(given: Given) -> dict[str, Any]:
    """What the checks of a processor take, with or without a session."""
    collateral = decoded(given.get("collateral") or {}, "amdCrl")
    return {
        "roots": made(CpuRoots, given.get("roots") or {}),
        "collateral": made(CpuCollateral, collateral),
        "policy": made(CpuPolicy, given.get("policy") or {}),
        "reference": given.get("reference"),
        "weights": given.get("weights"),
    }


def session_of(given: Given) -> VerifiedSession:
    names = {one.name for one in fields(CpuClaims)}
    claims = CpuClaims(**{name: value for name, value in given["cpu"].items() if name in names})
    software = given["cpu"].get("software")
    if software is not None:
        weights = None if software["weights"] is None else [Weights(**one) for one in software["weights"]]
        model = None if software["model"] is None else Weights(**software["model"])
        claims = replace(claims, software=CpuSoftware(**{**software, "weights": weights, "model": model}))
    return VerifiedSession(given["statement"], claims)


def options_of(given: Given) -> dict[str, Any]:
    """The options of an attestation, of evidence or of a session."""
    options: dict[str, Any] = {}
    kinds = {"roots": Roots, "without": Without, "policy": Policy, "limits": Limits}
    for name, value in given.items():
        if value is None:
            continue
        if name == "at":
            options["at"] = instant(value)
        elif name == "clocks":
            options["clocks"] = made(Clocks, {one: instant(at) for one, at in value.items()})
        elif name == "expected":
            options["expected"] = made(Expected, decoded(value, "transcript"))
        elif name == "collateral":
            ocsp = [base64.b64decode(one) for one in value.get("ocsp", ())]
            options["collateral"] = create_collateral(rims=value.get("rims", {}), ocsp=ocsp)
        elif name == "bundles":
            options["bundles"] = Bundles(value.get)
        elif name == "cpu":
            options["cpu"] = CpuOptions(**options_of_cpu(value))
        elif name == "release":
            options["release"] = ReleaseOptions(**{snake(one): text for one, text in value.items()})
        elif name == "session":
            options["session"] = session_of(value)
        else:
            options[snake(name)] = made(kinds[name], value) if name in kinds else value
    return options


def options_of_evidence(given: Given) -> dict[str, Any]:
    """The options of a processor's bare evidence."""
    return {
        **options_of_cpu(given),
        "at": instant(given["at"]),
        "simulated_roots": given.get("simulatedRoots"),
        "without": made(CpuWithout, given.get("without") or {}),
        "expected": made(CpuExpected, given.get("expected") or {}),
        "stop_at_failure": given.get("stopAtFailure", False),
    }


CALLS = {"attestation": appraise_attestation, "evidence": appraise_evidence, "session": appraise_session}


def answer(question: Given) -> Given:
    given = question["input"]
    value = base64.b64decode(given["bytes"]) if "bytes" in given else given.get("text", given.get("value"))
    try:
        if question["call"] == "cpu":
            report = appraise_cpu(value, **options_of_evidence(question["options"])).to_dict()
        else:
            report = CALLS[question["call"]](value, **options_of(question["options"])).to_dict()
    except TypeError as error:
        return {"error": "TypeError", "why": f"{error}\n{traceback.format_exc()}"}
    except Exception as error:
        return {"error": type(error).__name__, "why": traceback.format_exc()}
    return {"report": report}


if __name__ == "__main__":
    serve(answer)

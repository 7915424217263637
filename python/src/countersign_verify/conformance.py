"""The runner of one conformance case: ``python -m countersign_verify.conformance CASE_FILE`` prints the verdict of a file of ``vectors/cases/``.

It prints one line and exits by it: ``valid LEVEL`` 0, ``invalid CODE`` 1, ``incomplete CODE`` 3; 2 is a file that is no case, 4 a
case of something that this verifier does not know. The format is in ``vectors/README.md``. What the case expects is not read.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from .attestation import appraise_attestation
from .cli.input import UsageError, own_fault, read_text
from .common.bundles import Bundles
from .common.checks import Limits
from .cpu.cpu_options import CpuOptions
from .evidence import appraise_evidence
from .gpu.collateral import create_collateral
from .gpu.devices import Without
from .policy.options import Expected, Policy, Roots, VerificationReport

USAGE: Final = 2
UNSUPPORTED: Final = 4

_MEMBERS = frozenset(
    {"description", "check", "attestation", "attestation_file", "text", "evidence", "options", "expect"}
)
_INPUTS = ("attestation", "attestation_file", "text", "evidence")
_OPTIONS = frozenset(
    {
        "at",
        "simulated_root_file",
        "rim_root_file",
        "rim_files",
        "ocsp_files",
        "bundle_files",
        "nras_keys",
        "expected",
        "without",
        "cpu",
        "max_age_seconds",
        "max_batch",
        "required_checks",
        "max_characters",
    }
)
_EXPECTED = frozenset({"endpoint", "request", "response", "transcript", "event", "nonce"})
_WITHOUT = frozenset({"reference_values", "revocation"})
_CPU = frozenset({"reference", "weights"})


class Unsupported(Exception):
    """The case has a member that this runner does not know."""


def appraise_case(file: Path) -> VerificationReport:
    """Runs the case of a file: its paths start in the folder above its own.

    :raises UsageError: the file is no case. :raises Unsupported: it has members that are not known.
    """
    case = _object(_parsed(file), "a case")
    _only(case, _MEMBERS)
    folder = file.absolute().parent.parent
    options = _options(folder, _object(case.get("options", {}), "options"))
    given = [name for name in _INPUTS if name in case]
    if len(given) != 1:
        raise UsageError(f"a case has one of {', '.join(_INPUTS)}")
    name, value = given[0], case[given[0]]
    if name == "evidence":
        return appraise_evidence(value, **options)
    return appraise_attestation(_parsed(folder / value) if name == "attestation_file" else value, **options)


def _options(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    _only(given, _OPTIONS)
    expected = _object(given.get("expected", {}), "expected")
    without = _object(given.get("without", {}), "without")
    _only(expected, _EXPECTED)
    _only(without, _WITHOUT)
    cpu = None if "cpu" not in given else _object(given["cpu"], "cpu")
    _only(cpu or {}, _CPU)
    rims = {rim: read_text(str(folder / path)) for rim, path in given.get("rim_files", {}).items()}
    bundles = {name: read_text(str(folder / path)) for name, path in given.get("bundle_files", {}).items()}
    ocsp = [_der(folder / path) for path in given.get("ocsp_files", [])]
    transcript = expected.get("transcript")
    texts = {name: text for name, text in expected.items() if name != "transcript"}
    return {
        "at": _instant(given.get("at")),
        "simulated_root": _file(folder, given, "simulated_root_file"),
        "roots": Roots(rim=_file(folder, given, "rim_root_file")),
        "bundles": Bundles(bundles.get),
        "collateral": create_collateral(rims=rims, ocsp=ocsp),
        "nras_keys": given.get("nras_keys"),
        "expected": Expected(**texts, transcript=None if transcript is None else transcript.encode()),
        "without": Without(**without),
        "policy": Policy(
            max_age_seconds=given.get("max_age_seconds"),
            max_batch=given.get("max_batch"),
            required_checks=given.get("required_checks", ()),
        ),
        "cpu": None if cpu is None else CpuOptions(**cpu),
        "limits": Limits(max_characters=given.get("max_characters")),
    }


def _parsed(file: Path) -> Any:
    try:
        return json.loads(read_text(str(file)))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON") from error


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not an object")
    return value


def _only(value: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(set(value) - known)
    if unknown:
        raise Unsupported(", ".join(unknown))


def _file(folder: Path, given: Mapping[str, Any], name: str) -> str | None:
    return read_text(str(folder / given[name])) if name in given else None


def _der(file: Path) -> bytes:
    try:
        return base64.b64decode("".join(read_text(str(file)).split()), validate=True)
    except binascii.Error as error:
        raise UsageError(f"{file}: not base64") from error


def _instant(text: object) -> datetime:
    try:
        if isinstance(text, str):
            return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
    except ValueError:
        pass
    raise UsageError("options.at is not a time")


def verdict_line(report: VerificationReport) -> tuple[str, int]:
    if report.valid:
        return f"valid {report.level}", 0
    code = next(check.code for check in report.checks if check.status == "fail")
    return (f"incomplete {code}", 3) if report.incomplete else (f"invalid {code}", 1)


def main(argv: Sequence[str] | None = None, appraise: Callable[[Path], VerificationReport] = appraise_case) -> int:
    """:returns: the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if len(given) != 1 or given[0] in ("-h", "--help"):
        print("usage: python -m countersign_verify.conformance CASE_FILE", file=sys.stderr)
        return 0 if list(given) in (["-h"], ["--help"]) else USAGE
    try:
        line, status = verdict_line(appraise(Path(given[0])))
    except Unsupported as error:
        line, status = f"unsupported {error}", UNSUPPORTED
    except (UsageError, TypeError) as error:
        print(f"countersign: {error}", file=sys.stderr)
        return USAGE
    except Exception as error:
        # Python's own exit status for it is that of an invalid case.
        print(own_fault(error), file=sys.stderr)
        return USAGE
    print(line)
    return status


if __name__ == "__main__":
    sys.exit(main())

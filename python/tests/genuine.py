"""The genuine evidence that tests read in place: the folder in GENUINE_VECTORS, else .cache/genuine, else ../shared/vectors."""

import json
import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_LIST = _ROOT / "test" / "support" / "genuine.json"
_CACHE = _ROOT / ".cache" / "genuine"


def _paths() -> list[str]:
    return [one["path"] for one in json.loads(_LIST.read_text(encoding="utf-8"))]


def named_in(room: str) -> list[str]:
    """The folders of a room, such as `sigstore`, whether or not they are at hand."""
    return sorted({path.split("/")[1] for path in _paths() if path.startswith(f"{room}/")})


def _folder() -> Path | None:
    """None where no folder has all that genuine.json names."""
    named = os.environ.get("GENUINE_VECTORS")
    folders = [Path(named)] if named else [_CACHE, _ROOT.parent / "shared" / "vectors"]
    paths = _paths()
    return next((folder for folder in folders if all((folder / path).is_file() for path in paths)), None)


_FOUND = _folder()
FOLDER = _FOUND or _CACHE
PRESENT = _FOUND is not None
MISSING = "SKIPPED: tests over genuine evidence: `npm run make genuine` brings it"
needs_genuine = pytest.mark.skipif(not PRESENT, reason=MISSING)


def genuine(path: str) -> bytes:
    """A file by its path within the folder: `nvidia/h100-550.90.07/report.bin`."""
    return (FOLDER / path).read_bytes()

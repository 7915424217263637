"""The genuine evidence that tests read in place: `../shared/vectors` beside the checkout, or the folder in COUNTERSIGN_GENUINE."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "vectors"
FOLDER = Path(os.environ.get("COUNTERSIGN_GENUINE") or _BESIDE)
PRESENT = FOLDER.is_dir()
MISSING = f"SKIPPED: tests over genuine evidence: {FOLDER} is not there"
needs_genuine = pytest.mark.skipif(not PRESENT, reason=MISSING)


def genuine(path: str) -> bytes:
    """A file by its path within the folder: `nvidia/h100-550.90.07/report.bin`."""
    return (FOLDER / path).read_bytes()

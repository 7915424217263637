"""Says at the head of every run what cannot run."""

from genuine import MISSING, PRESENT


def pytest_report_header() -> str | None:
    return None if PRESENT else MISSING

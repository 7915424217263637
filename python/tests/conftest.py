"""Says at the head of every run what cannot run, and keeps tests apart."""

import pytest

from countersign_verify.clients import sealed_answers
from countersign_verify.common.lru import LruMap
from genuine import MISSING, PRESENT


def pytest_report_header() -> str | None:
    return None if PRESENT else MISSING


@pytest.fixture(autouse=True)
def nothing_sent_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests send the same recorded bodies, sealed and not; a client's bodies hold a challenge of their own."""
    monkeypatch.setattr(sealed_answers, "_SENT", LruMap(100))

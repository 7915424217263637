"""A releaser's status: which release is the current one and which were withdrawn, signed anew every week."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.checks import CheckFailure
from ..common.release_options import ReleaseStatus
from ..proto.strict_json import whole_number
from . import times
from .bundle import read_bundle
from .certificate import Identity, Ids
from .form import FormError, items, members, text, with_code
from .signed import verify_bundle
from .statement import DIGEST, TAG_NAME, ReleaseStatement, predicate_type, read_statement
from .trusted_root import TrustedRoot


@dataclass(frozen=True)
class _Withdrawn:
    tag: str
    statement_sha256: str
    reason: str


@dataclass(frozen=True)
class _Predicate:
    repository: str
    current: str
    withdrawn: Sequence[_Withdrawn]


@dataclass(frozen=True)
class SignedStatus:
    logged: int
    """Unix milliseconds."""
    current: str
    current_sha256: str
    """SHA-256 of the statement of the current release."""
    withdrawn: Sequence[_Withdrawn]


_FRESH_MS = 14 * 24 * 60 * 60 * 1000
_MAX_WITHDRAWN = 1024
_REASON = re.compile(r"[\x20-\x7e]{1,512}")

_ABSENT = ReleaseStatus(state="absent", time=None, current=None, withdrawn_later=None)


def read_status(given: str, root: TrustedRoot, repository: str, ids: Ids | None) -> SignedStatus:
    """@raises CheckFailure"""
    bundle = read_bundle(given)
    identity = Identity(
        repository=repository,
        workflow="release-status.yml",
        ref="refs/heads/main",
        events=("schedule", "workflow_dispatch"),
        ids=ids,
    )
    logged = verify_bundle(bundle, root, identity, None).logged
    statement = read_statement(bundle.payload, predicate_type(repository, "release-status"))
    status = with_code("release_status_malformed", "the status", lambda: _predicate(statement.predicate))
    if status.repository != repository:
        raise CheckFailure("release_repository_mismatch", "the status is about another repository")
    if list(statement.subjects) != [status.current]:
        message = "the status is not about the release that it calls current"
        raise CheckFailure("release_subject_mismatch", message)
    return SignedStatus(logged, status.current, statement.subjects[status.current], status.withdrawn)


def _predicate(value: object) -> _Predicate:
    predicate = members(value, "predicate", ("version", "repository", "current", "withdrawn"))
    if whole_number(predicate["version"]) != 1:
        raise FormError("predicate.version is not 1")
    return _Predicate(
        repository=text(predicate["repository"], "repository"),
        current=text(predicate["current"], "current", TAG_NAME),
        withdrawn=[
            _withdrawn(one, i) for i, one in enumerate(items(predicate["withdrawn"], "withdrawn", _MAX_WITHDRAWN))
        ],
    )


def _withdrawn(value: object, index: int) -> _Withdrawn:
    one = members(value, f"withdrawn[{index}]", ("tag", "statement_sha256", "reason"))
    return _Withdrawn(
        tag=text(one["tag"], "tag", TAG_NAME),
        statement_sha256=text(one["statement_sha256"], "statement_sha256", DIGEST),
        reason=text(one["reason"], "reason", _REASON),
    )


def judge(
    status: SignedStatus | None, release: ReleaseStatement, *, answered: float, at: int, is_pinned: bool
) -> ReleaseStatus:
    """
    `answered`: the time of the answer, by which the status must be fresh. `at`: the time of the check: what was
    withdrawn in a status of later does not count, and is told. `is_pinned`: the caller names a tag, so that a status may
    be old or absent.
    @raises CheckFailure: release_withdrawn, release_subject_mismatch, release_status_stale, release_status_unavailable
    """
    if status is None:
        if is_pinned:
            return _ABSENT
        raise CheckFailure("release_status_unavailable", "no status was shown, and the caller names no tag")
    logged, current = status.logged, status.current
    found = next(
        (one for one in status.withdrawn if one.tag == release.tag or one.statement_sha256 == release.sha256), None
    )
    if found is not None and logged <= at:
        raise CheckFailure("release_withdrawn", f"{release.tag} was withdrawn: {found.reason}")
    # A tag can be moved, and its workflow then signs once more.
    if current == release.tag and status.current_sha256 != release.sha256 and logged <= at:
        raise CheckFailure("release_subject_mismatch", f"the status is about another statement of {current}")
    is_fresh = logged >= answered - _FRESH_MS
    if not is_fresh and not is_pinned:
        message = (
            f"the status is of {times.iso(logged)}, more than 14 days before the answer, and the caller names no tag"
        )
        raise CheckFailure("release_status_stale", message)
    later = None if found is None else found.reason
    return ReleaseStatus("fresh" if is_fresh else "stale", times.iso(logged), current, later)

"""Verifies a release: from the caller's options to the list of guests and launch files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..common.checks import CheckFailure, CheckList, Passed, passed
from ..common.lru import LruMap
from ..common.release_options import ReleaseClaims, ReleaseOptions, ReleaseStatus
from . import project, times
from .bundle import read_bundle
from .certificate import Identity, Ids
from .public_root import PUBLIC_ROOT
from .signed import verify_bundle
from .statement import REPOSITORY, TAG_NAME, ReleaseStatement, read_release
from .status import judge, read_status
from .trusted_root import TrustedRoot, read_trusted_root


@dataclass(frozen=True)
class VerifiedRelease:
    reference: Mapping[str, Any]
    """The list that it publishes, for the option `cpu.reference`."""
    claims: ReleaseClaims


@dataclass(frozen=True)
class _Context:
    options: ReleaseOptions
    repository: str
    own: bool
    ids: Ids | None
    root: TrustedRoot
    at: int
    answered: float


def _read_options(options: ReleaseOptions, at: datetime | None, answered: float | None) -> _Context:
    """`answered`: Unix milliseconds. @raises TypeError for options that cannot be used."""
    own = project.PROJECT
    repository, tag = options.repository, options.tag
    if repository is None and own is not None:
        repository = own.repository
    if not isinstance(repository, str) or REPOSITORY.fullmatch(repository) is None:
        raise TypeError("release.repository is not OWNER/REPO, and the project has no public repository yet")
    if tag is not None and (not isinstance(tag, str) or TAG_NAME.fullmatch(tag) is None):
        raise TypeError("release.tag is not the name of a tag")
    for name in ("bundle", "status", "trusted_root"):
        if not isinstance(getattr(options, name), str | None):
            raise TypeError(f"release.{name} is not a text")
    now = datetime.now(timezone.utc) if at is None else _instant(at, "at")
    is_own = own is not None and repository == own.repository
    return _Context(
        options=options,
        repository=repository,
        own=is_own,
        ids=own.ids if own is not None and is_own else None,
        root=_read_root(PUBLIC_ROOT if options.trusted_root is None else options.trusted_root),
        at=times.of(now),
        answered=times.of(now) if answered is None else answered if answered <= times.MAX_MS else math.nan,
    )


def _instant(value: object, name: str) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(f"{name} is not a time with a time zone")
    return value


_roots: LruMap[str, TrustedRoot] = LruMap(4)


def _read_root(given: str) -> TrustedRoot:
    root = _roots.get(given) or read_trusted_root(given)
    _roots.set(given, root)
    return root


@dataclass(frozen=True)
class _Verified:
    statement: ReleaseStatement
    logged: int


def _verified(context: _Context) -> _Verified:
    options, repository = context.options, context.repository
    if options.bundle is None:
        raise CheckFailure("release_unavailable", f"no bundle of a release of {repository} was to be had")
    bundle = read_bundle(options.bundle)
    identity = Identity(
        repository=repository,
        workflow="release.yml",
        ref=None if options.tag is None else f"refs/tags/{options.tag}",
        events=("push",),
        ids=context.ids,
    )
    signed = verify_bundle(bundle, context.root, identity, context.at)
    return _Verified(read_release(bundle.payload, signed.named), signed.logged)


def _standing(context: _Context, release: _Verified) -> ReleaseStatus:
    given = context.options.status
    status = None if given is None else read_status(given, context.root, context.repository, context.ids)
    is_pinned = context.options.tag is not None
    return judge(status, release.statement, answered=context.answered, at=context.at, is_pinned=is_pinned)


def _concluded(context: _Context, release: _Verified, status: ReleaseStatus | None) -> VerifiedRelease:
    statement = release.statement
    claims = ReleaseClaims(
        repository=statement.repository,
        own=context.own,
        tag=statement.tag,
        commit=statement.commit,
        statement_sha256=statement.sha256,
        logged=times.iso(release.logged),
        own_root=context.options.trusted_root is not None,
        weights=tuple(statement.weights),
        images=statement.images,
        launches=statement.launches,
        status=status,
    )
    return VerifiedRelease(statement.reference, claims)


def verify_release(
    options: ReleaseOptions, *, at: datetime | None = None, answered: datetime | None = None
) -> VerifiedRelease:
    """
    Verifies a release by itself. `at`: the time of the check, now by default. `answered`: the time of the answer, by
    which the status must be fresh; `at` by default.
    @raises CheckFailure with a code that begins with `release_`. @raises TypeError for options that cannot be used.
    """
    context = _read_options(options, at, None if answered is None else times.of(_instant(answered, "answered")))
    release = _verified(context)
    return _concluded(context, release, _standing(context, release))


def check_release(
    checks: CheckList, options: ReleaseOptions, *, at: datetime, answered: float | None
) -> VerifiedRelease | None:
    """The same as two checks of a list, `answered` in Unix milliseconds. Returns None: the first failed. @raises TypeError"""
    context = _read_options(options, at, answered)

    def verified() -> Passed[_Verified]:
        found = _verified(context)
        statement = found.statement
        return passed(f"{statement.tag} of {statement.repository}, in the log since {times.iso(found.logged)}", found)

    release = checks.run("release", (), verified)

    def standing() -> Passed[ReleaseStatus]:
        assert release is not None
        found = _standing(context, release)
        return passed(f"the release's status is {found.state}", found)

    status = checks.run("release_status", ("release",), standing)
    return None if release is None else _concluded(context, release, status)

"""The release that a caller names. Its code is loaded where one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .common.checks import CheckList
from .policy.options import Context

if TYPE_CHECKING:
    from .release.check import VerifiedRelease


def check_named_release(checks: CheckList, context: Context, answered: int | None) -> VerifiedRelease | None:
    """
    `answered`: the time of the answer in Unix milliseconds; None: that of the check. Returns None: no release is named,
    or its check failed.
    """
    release = context.options.release
    if release is None:
        return None
    from .release.check import check_release

    return check_release(checks, release, at=context.at, answered=answered)

"""What the caller says of a release, and what is told of one that was verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ReleaseOptions:
    bundle: str | None
    """The release's Sigstore bundle, as JSON text; None where it was not to be had, which is the failure release_unavailable."""
    status: str | None = None
    """The newest status that was shown, as JSON text of its bundle."""
    repository: str | None = None
    """OWNER/REPO on GitHub; the project's own by default, once it has one."""
    tag: str | None = None
    """The tag that the release must have; without it any, and then a fresh status is demanded."""
    trusted_root: str | None = None
    """Sigstore's trusted root as JSON text, in place of the public one that is built in."""


@dataclass(frozen=True)
class ReleaseWeights:
    """What a launch file says of the weights."""

    launch: str
    """The name of the launch file."""
    name: str
    verity_root: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"launch": self.launch, "name": self.name, "verity_root": self.verity_root}


@dataclass(frozen=True)
class ReleaseStatus:
    """What is known of a release's standing at a time."""

    state: Literal["fresh", "stale", "absent"]
    """`absent`: no status was shown. `stale`: it was signed more than 14 days before."""
    time: str | None
    """When the status was logged, ISO 8601."""
    current: str | None
    """The tag that is current by it."""
    withdrawn_later: str | None
    """Why the release was withdrawn after the time of the check; None: it was not."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "time": self.time,
            "current": self.current,
            "withdrawn_later": self.withdrawn_later,
        }


@dataclass(frozen=True)
class ReleaseClaims:
    """A release whose signature, log entry and identity were verified."""

    repository: str
    """OWNER/REPO whose workflow signed."""
    own: bool
    """Whether it is the project's own."""
    tag: str
    commit: str
    statement_sha256: str
    """SHA-256 of the statement."""
    logged: str
    """When it was logged, ISO 8601."""
    own_root: bool
    """Whether a root of the caller's stood in place of Sigstore's public one."""
    weights: Sequence[ReleaseWeights]
    images: Mapping[str, str]
    launches: Mapping[str, str]
    """By SHA-256, the name that the release gives to a launch file."""
    status: ReleaseStatus | None
    """None: its check failed."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "repository": self.repository,
            "own": self.own,
            "tag": self.tag,
            "commit": self.commit,
            "statement_sha256": self.statement_sha256,
            "logged": self.logged,
            "own_root": self.own_root,
            "weights": [one.to_dict() for one in self.weights],
            "images": dict(self.images),
            "launches": dict(self.launches),
            "status": None if self.status is None else self.status.to_dict(),
        }

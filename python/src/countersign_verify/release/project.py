"""
The project's own identity: what its releases are signed as. The first release sets it; until then it is empty, and
callers name a repository.
"""

from __future__ import annotations

from dataclasses import dataclass

from .certificate import Ids


@dataclass(frozen=True)
class Project:
    repository: str
    """OWNER/REPO on GitHub."""
    ids: Ids
    """They stay where a name is given to somebody else."""


PROJECT: Project | None = None

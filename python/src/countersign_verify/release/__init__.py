"""Verifies what a release publishes to be expected: the option `release` of `verify_attestation` does so for an answer, and this by itself."""

from ..common.checks import CheckFailure
from ..common.release_options import ReleaseClaims, ReleaseOptions, ReleaseStatus, ReleaseWeights
from .check import VerifiedRelease, verify_release
from .project import PROJECT, Project

__all__ = [
    "PROJECT",
    "CheckFailure",
    "Project",
    "ReleaseClaims",
    "ReleaseOptions",
    "ReleaseStatus",
    "ReleaseWeights",
    "VerifiedRelease",
    "verify_release",
]

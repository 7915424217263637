"""The verdict's words about a release."""

from __future__ import annotations

from collections.abc import Iterator

from ..common.release_options import ReleaseClaims


def release_sentence(release: ReleaseClaims, launch: str) -> str:
    """`Countersign 0.3.0, built from commit … by the public workflow, in Sigstore's log since …, weights …`."""
    name = f"{release.tag} of {release.repository}"
    if release.own:
        name = f"Countersign {release.tag.removeprefix('v')}"
    log = "in a log that the caller trusts" if release.own_root else "in Sigstore's log"
    served = [one.name for one in release.weights if one.launch == release.launches.get(launch)]
    models = f", weights {', '.join(served)}" if served else ""
    return (
        f"{name}, built from commit {release.commit} by the public workflow, {log} since {release.logged[:10]}{models}"
    )


def release_leaves_open(release: ReleaseClaims) -> Iterator[str]:
    status = release.status
    yield (
        f"That the release is good: it shows who published it ({release.repository}) and from which commit, not that anybody "
        "reviewed that."
    )
    if status is None or status.state == "absent":
        yield "That the release was not withdrawn: no status of its publisher was shown."
        return
    if status.state == "stale":
        yield (
            f"That the release was not withdrawn: its publisher's newest status is of {status.time}, 14 days or more before "
            "the answer."
        )
    if status.current not in (None, release.tag):
        yield f"That it is the current release: its publisher's is {status.current}."
    if status.withdrawn_later is not None:
        yield (
            f"That the release still holds: it was withdrawn after the time of this check ({status.withdrawn_later})."
        )

"""The in-toto statement of a release: its files, whose digests are the subjects, and from them the list of guests and launch files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from ..common.checks import CheckFailure
from ..common.release_options import ReleaseWeights
from ..cpu.reference import read_reference
from ..proto.bytes import EncodingError, from_utf8, utf8
from ..proto.strict_json import ordered_names, stringify, whole_number
from .certificate import Named
from .form import ABSENT, FormError, items, members, parsed, record, text, with_code


@dataclass(frozen=True)
class ReleaseStatement:
    repository: str
    tag: str
    commit: str
    sha256: str
    """SHA-256 of the statement's bytes."""
    reference: Mapping[str, Any]
    launches: Mapping[str, str]
    """Launch files by their SHA-256: the name that the release gives each."""
    weights: Sequence[ReleaseWeights]
    images: Mapping[str, str]


_MAX_STATEMENT_BYTES = 256 * 1024
_MAX_FILES = 64
_IN_TOTO = "https://in-toto.io/Statement/v1"
_REFERENCE = "reference.json"
_LAUNCH = re.compile(r"launch(?:-[a-z0-9][a-z0-9.-]{0,62})?\.json")
DIGEST = re.compile(r"[0-9a-f]{64}")
_TEXT = re.compile(r"[\x20-\x7e]{1,256}")


def predicate_type(repository: str, kind: Literal["release", "release-status"]) -> str:
    """In the releaser's own part of GitHub's names, so that nobody else's statement is of this type."""
    return f"https://github.com/{repository}/{kind}/v1"


@dataclass(frozen=True)
class Statement:
    subjects: Mapping[str, str]
    """Their digests by name."""
    predicate: object


def read_statement(payload: bytes, kind: str) -> Statement:
    """@raises CheckFailure"""
    if len(payload) > _MAX_STATEMENT_BYTES:
        raise CheckFailure("release_too_large", f"the statement has more than {_MAX_STATEMENT_BYTES} bytes")
    return with_code("release_statement_malformed", "the statement", lambda: _statement(payload, kind))


def _statement(payload: bytes, kind: str) -> Statement:
    statement = members(parsed(_text_of(payload)), "it", ("_type", "subject", "predicateType", "predicate"))
    if statement["_type"] != _IN_TOTO:
        raise FormError("it is no in-toto statement of version 1")
    if statement["predicateType"] != kind:
        raise FormError(f"it is not of the type {kind}")
    subjects: dict[str, str] = {}
    for given in items(statement["subject"], "subject", _MAX_FILES):
        subject = members(given, "subject", ("name", "digest"))
        digest = members(subject["digest"], "digest", ("sha256",))["sha256"]
        name = text(subject["name"], "name", _TEXT)
        if name in subjects:
            raise CheckFailure("release_subject_duplicate", f"two subjects are called {name}")
        subjects[name] = text(digest, "sha256", DIGEST)
    return Statement(subjects, statement["predicate"])


def _text_of(payload: bytes) -> str:
    try:
        return from_utf8(payload)
    except EncodingError as cause:
        raise FormError("it is not UTF-8") from cause


def read_release(payload: bytes, named: Named) -> ReleaseStatement:
    """`named`: what the certificate names. @raises CheckFailure"""
    statement = read_statement(payload, predicate_type(named.repository, "release"))
    subjects = statement.subjects
    said = with_code("release_statement_malformed", "the statement", lambda: _predicate(statement.predicate))
    if said.repository != named.repository:
        raise CheckFailure("release_repository_mismatch", "the statement is about another repository")
    if f"refs/tags/{said.tag}" != named.ref:
        raise CheckFailure("release_tag_mismatch", "the statement is about another tag")
    if said.commit != named.commit:
        raise CheckFailure("release_commit_mismatch", "the statement is about another commit")
    digests = {name: sha256(utf8(content)).hexdigest() for name, content in said.files.items()}
    other = next((name for name in (*subjects, *digests) if subjects.get(name) != digests.get(name)), None)
    if other is not None:
        raise CheckFailure("release_subject_mismatch", f"the subject {other} is not the text of that name")
    reference = _read_list(said.files[_REFERENCE])
    launches = {digest: name for name, digest in digests.items() if name != _REFERENCE}
    if len(launches) != len(reference["launch"]) or not all(one in launches for one in reference["launch"]):
        raise _malformed_list("its launch files are not those of the release")
    weights = with_code("release_statement_malformed", "the statement", lambda: weights_of(said.files))
    if weights != said.weights:
        message = "the statement: weights are not those of its launch files"
        raise CheckFailure("release_statement_malformed", message)
    return ReleaseStatement(
        repository=said.repository,
        tag=said.tag,
        commit=said.commit,
        sha256=sha256(payload).hexdigest(),
        reference=reference,
        launches=launches,
        weights=weights,
        images=said.images,
    )


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
TAG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PINNED = re.compile(r"[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class _Predicate:
    repository: str
    tag: str
    commit: str
    files: Mapping[str, str]
    weights: Sequence[ReleaseWeights]
    images: Mapping[str, str]


def _predicate(value: object) -> _Predicate:
    needed = ("version", "repository", "tag", "commit", "files", "weights", "images")
    predicate = members(value, "predicate", needed)
    if whole_number(predicate["version"]) != 1:
        raise FormError("predicate.version is not 1")
    given = record(predicate["files"], "files")
    files = {name: text(given[name], f"files.{name}") for name in ordered_names(given)}
    other = next((name for name in files if name != _REFERENCE and _LAUNCH.fullmatch(name) is None), None)
    if other is not None:
        raise FormError(f"files has {other[:64]}, which is not known")
    if not 2 <= len(files) <= _MAX_FILES or _REFERENCE not in files:
        raise FormError(f"files are not {_REFERENCE} and at least one launch file")
    images = record(predicate["images"], "images")
    named = {
        text(name, "images", _NAME): text(images[name], f"images.{name}", _PINNED) for name in ordered_names(images)
    }
    return _Predicate(
        repository=text(predicate["repository"], "repository", REPOSITORY),
        tag=text(predicate["tag"], "tag", TAG_NAME),
        commit=text(predicate["commit"], "commit", _COMMIT),
        files=files,
        weights=[_stated(one, i) for i, one in enumerate(items(predicate["weights"], "weights", 1024))],
        images=named,
    )


def _stated(value: object, index: int) -> ReleaseWeights:
    one = members(value, f"weights[{index}]", ("launch", "name", "verity_root"))
    return _weights(text(one["launch"], "launch"), one["name"], one["verity_root"])


def _weights(launch: str, name: object, root: object) -> ReleaseWeights:
    stated = text(name, "weights", _TEXT)
    return ReleaseWeights(launch, stated, None if root is None else text(root, "verity_root", DIGEST))


def weights_of(files: Mapping[str, str]) -> list[ReleaseWeights]:
    """Of all launch files, in the order of files and of each file: its `weights`, or `model` where it is of version 1."""
    found: list[ReleaseWeights] = []
    for launch, content in files.items():
        if launch == _REFERENCE:
            continue
        given = record(parsed(content), launch)
        several = given.get("weights")
        listed = [given.get("model", ABSENT)] if several is None else several
        for value in items(listed, f"{launch}: weights", 64):
            one = record(value, f"{launch}: weights")
            found.append(_weights(launch, one.get("name", ABSENT), one.get("verity_root", ABSENT)))
    return found


def _malformed_list(message: str) -> CheckFailure:
    return CheckFailure("release_list_malformed", f"the list: {message}")


def _read_list(given: str) -> Mapping[str, Any]:
    """As a caller's own list is read, and no measurement twice."""
    try:
        reference = read_reference(given)
    except TypeError as cause:
        raise _malformed_list(str(cause)) from cause
    guests: Sequence[Mapping[str, Any]] = reference["cpu"]
    measured = [one for guest in guests if guest["type"] == "SEV_SNP" for one in guest["measurement"]]
    lists: list[Sequence[Any]] = [[stringify(guest) for guest in guests], measured, reference["launch"]]
    for guest in guests:
        lists += [one for one in (*guest.values(), *guest.get("pcrs", {}).values()) if isinstance(one, list)]
    if any(len(set(values)) != len(values) for values in lists):
        raise _malformed_list("it names a value twice")
    return reference

"""Fulcio's certificate: its chain, the certificate log's receipt in it (RFC 6962), and the identity that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from ..common.checks import CheckFailure, FailureCode
from ..proto.bytes import EncodingError, from_utf8
from ..x509 import (
    Certificate,
    ChainError,
    DerError,
    Tag,
    children,
    parse_certificate,
    read_at,
    read_one,
    sequence,
    verify_chain,
)
from ..x509.chain import printable
from . import times
from .trusted_root import Authority, LogKey, key_of, verifies_under, within

T = TypeVar("T")

_CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
_RECEIPTS = "1.3.6.1.4.1.11129.2.4.2"
_SUBJECT_ALT_NAME = "2.5.29.17"


def _bad(message: str) -> CheckFailure:
    return CheckFailure("release_certificate_invalid", message)


def read_leaf(der: bytes) -> Certificate:
    """@raises CheckFailure: release_certificate_invalid"""
    try:
        return parse_certificate(der)
    except DerError as cause:
        raise _bad(f"the certificate cannot be read: {cause}") from cause


def check_chain(leaf: Certificate, authorities: Sequence[Authority], at: Sequence[int]) -> Certificate:
    """
    `at`: the log's time, and any other that was shown. Returns the issuer.
    @raises CheckFailure: release_untrusted, release_root_expired, release_certificate_expired, release_certificate_invalid
    """
    begin, end = times.of(leaf.not_before), times.of(leaf.not_after)
    outside = next((time for time in at if not begin <= time <= end), None)
    if outside is not None:
        message = f"the certificate is of {times.iso(begin)} to {times.iso(end)}, and the statement was logged at {times.iso(outside)}"
        raise CheckFailure("release_certificate_expired", message)
    if leaf.is_ca or leaf.key_usage is None or "digitalSignature" not in leaf.key_usage:
        raise _bad("the certificate may not sign")
    if leaf.extended_key_usage is None or _CODE_SIGNING not in leaf.extended_key_usage:
        raise _bad("the certificate is not for signing code")
    named = [one for one in authorities if one.chain and one.chain[0].subject == leaf.issuer]
    if not named:
        raise CheckFailure("release_untrusted", "the trusted root does not know who issued the certificate")
    known = [one for one in named if all(within(time, one.period) for time in at)]
    if not known:
        message = "the trusted root ends this certificate authority before that time"
        raise CheckFailure("release_root_expired", message)
    failure: ChainError | None = None
    for authority in known:
        chain = authority.chain
        try:
            for time in at:
                verify_chain([leaf, *chain[:-1]], chain[-1:], times.instant(time))
            return chain[0]
        except ChainError as cause:
            failure = cause
    assert failure is not None
    code: FailureCode = "release_root_expired" if failure.reason == "expired" else "release_certificate_invalid"
    raise CheckFailure(code, str(failure)) from failure


# The receipt (signed certificate timestamp).


@dataclass(frozen=True)
class _Receipt:
    log_id: bytes
    time: bytes
    extensions: bytes
    signature: bytes


def check_receipts(leaf: Certificate, issuer: Certificate, logs: Sequence[LogKey]) -> None:
    """
    Every receipt must verify, and no log may give two. @raises CheckFailure: release_sct_invalid, release_untrusted
    """
    receipts = _attempt(lambda: _read_receipts(leaf))
    issuer_hash = sha256(issuer.spki).digest()
    tbs = _attempt(lambda: _without_receipts(leaf))
    for i, receipt in enumerate(receipts):
        if any(other.log_id == receipt.log_id for other in receipts[:i]):
            raise _bad_receipt("a log gave two receipts")
        log = key_of(logs, receipt.log_id)
        if log is None or log.algorithm != "P-256":
            raise CheckFailure("release_untrusted", "the trusted root does not know the log of certificates")
        at = int.from_bytes(receipt.time, "big")
        if at > times.MAX_MS or not within(at, log.period):
            raise _bad_receipt("the log of certificates had ended")
        signed = b"".join(
            (
                b"\x00\x00",
                receipt.time,
                b"\x00\x01",
                issuer_hash,
                len(tbs).to_bytes(3, "big"),
                tbs,
                len(receipt.extensions).to_bytes(2, "big"),
                receipt.extensions,
            )
        )
        if not verifies_under(log, receipt.signature, signed):
            raise _bad_receipt("its signature does not verify")


def _bad_receipt(what: str) -> CheckFailure:
    return CheckFailure("release_sct_invalid", f"the receipt of the certificate's log (SCT): {what}")


def _attempt(read: Callable[[], T]) -> T:
    try:
        return read()
    except DerError as cause:
        raise _bad_receipt(str(cause)) from cause


def _read_receipts(leaf: Certificate) -> list[_Receipt]:
    """RFC 6962 §3.3: a list with its length, each with its own."""
    extension = leaf.extensions.get(_RECEIPTS)
    if extension is None:
        raise DerError("there is none")
    cursor = _Cursor(read_one(extension.value, Tag.OCTET_STRING).content)
    listed = _Cursor(cursor.vector(2))
    cursor.end()
    receipts: list[_Receipt] = []
    while not listed.done:
        one = _Cursor(listed.vector(2))
        if one.take(1) != b"\x00":
            raise DerError("it is of another version")
        log_id, time, more = one.take(32), one.take(8), one.vector(2)
        # SHA-256 and ECDSA (RFC 5246 §7.4.1.4.1).
        if one.take(2) != b"\x04\x03":
            raise DerError("a signature that is not supported")
        receipts.append(_Receipt(log_id, time, more, one.vector(2)))
        one.end()
    if not receipts:
        raise DerError("there is none")
    return receipts


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._data)

    def take(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise DerError("it breaks off")
        self._at += length
        return self._data[self._at - length : self._at]

    def vector(self, size: int) -> bytes:
        """What follows its own length, of `size` bytes."""
        return self.take(int.from_bytes(self.take(size), "big"))

    def end(self) -> None:
        if not self.done:
            raise DerError("bytes follow it")


def _without_receipts(leaf: Certificate) -> bytes:
    """The certificate as it was shown to the log: its signed part without the receipts."""
    parts = sequence(read_one(leaf.signed.tbs))
    last = parts.pop() if parts else None
    if last is None or last.tag != 0xA3:
        raise DerError("the certificate has no extensions")
    kept = [one.whole for one in sequence(read_one(last.content)) if read_at(one.content, 0).whole != _RECEIPTS_ID]
    extensions = _der(0xA3, [_der(Tag.SEQUENCE, kept)])
    return _der(Tag.SEQUENCE, [*(one.whole for one in parts), extensions])


_RECEIPTS_ID = bytes.fromhex("060a2b06010401d679020402")


def _der(tag: int, contents: Sequence[bytes]) -> bytes:
    content = b"".join(contents)
    length = len(content)
    size = (
        bytes((length,))
        if length < 0x80
        else b"\x81" + bytes((length,))
        if length < 0x100
        else b"\x82" + length.to_bytes(2, "big")
    )
    return bytes((tag,)) + size + content


# The identity. Fulcio's extensions: github.com/sigstore/fulcio, docs/oid-info.md.

_FULCIO = "1.3.6.1.4.1.57264.1"
_GITHUB = "https://github.com"
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Ids:
    """GitHub's numbers."""

    repository: str
    owner: str


@dataclass(frozen=True)
class Identity:
    """What a workflow must be for its word to count. Texts are compared whole."""

    repository: str
    """OWNER/REPO."""
    workflow: str
    """The workflow's file name."""
    ref: str | None
    """`refs/tags/v1.2.3`; None: any tag."""
    events: Sequence[str]
    ids: Ids | None
    """Of the repository and its owner; None: only the names are compared."""


@dataclass(frozen=True)
class Named:
    """What the certificate names."""

    repository: str
    ref: str
    commit: str


def check_identity(leaf: Certificate, expected: Identity) -> Named:
    """@raises CheckFailure"""

    def said(n: int) -> str:
        return _extension_text(leaf, n)

    def must_be(n: int, value: str, code: FailureCode, what: str) -> None:
        if said(n) != value:
            raise CheckFailure(code, f"the certificate is of another {what}: {_shown(said(n))}")

    repository, ids = expected.repository, expected.ids
    must_be(8, _GITHUB_ISSUER, "release_issuer_mismatch", "issuer of identities")
    must_be(12, f"{_GITHUB}/{repository}", "release_repository_mismatch", "repository")
    if ids is not None:
        must_be(15, ids.repository, "release_id_mismatch", "repository with that name")
        must_be(17, ids.owner, "release_id_mismatch", "owner with that name")
    ref = said(14)
    kind = "/".join((expected.ref or "refs/tags/").split("/")[:2])
    if not ref.startswith(f"{kind}/"):
        message = f"the certificate is of {_shown(ref)}, which is not under {kind}"
        raise CheckFailure("release_ref_mismatch", message)
    if expected.ref not in (None, ref):
        code: FailureCode = "release_tag_mismatch" if kind == "refs/tags" else "release_ref_mismatch"
        raise CheckFailure(code, f"the certificate is of {_shown(ref)}, not of {expected.ref}")
    if said(20) not in expected.events:
        raise CheckFailure("release_event_mismatch", f"the workflow was started by {_shown(said(20))}")
    must_be(11, "github-hosted", "release_runner_mismatch", "kind of runner")
    file = f"{_GITHUB}/{repository}/.github/workflows/{expected.workflow}@{ref}"
    must_be(18, file, "release_workflow_mismatch", "workflow")
    must_be(9, file, "release_workflow_mismatch", "workflow")
    if _alternative_name(leaf) != file:
        raise CheckFailure("release_identity_mismatch", f"the certificate names {_shown(_alternative_name(leaf))}")
    commit = said(13)
    if _COMMIT.fullmatch(commit) is None:
        raise CheckFailure("release_commit_mismatch", "the certificate names no commit")
    return Named(repository, ref, commit)


def _shown(text: str) -> str:
    return printable(text, 200)


def _extension_text(leaf: Certificate, n: int) -> str:
    extension = leaf.extensions.get(f"{_FULCIO}.{n}")
    if extension is None:
        return ""
    value = extension.value
    return _as_text(lambda: read_one(value, Tag.UTF8_STRING).content)


def _alternative_name(leaf: Certificate) -> str:
    """The one URI; empty where there is another name, or a second."""
    extension = leaf.extensions.get(_SUBJECT_ALT_NAME)
    if extension is None:
        return ""
    value = extension.value

    def one_uri() -> bytes:
        names = children(read_one(value, Tag.SEQUENCE).content)
        if len(names) != 1 or names[0].tag != 0x86:
            raise DerError("not one URI")
        return names[0].content

    return _as_text(one_uri)


def _as_text(read: Callable[[], bytes]) -> str:
    try:
        return from_utf8(read())
    except (DerError, EncodingError):
        return ""

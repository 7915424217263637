"""
A batched proof: many answers that one GPU nonce commits to, as the leaves of a Merkle tree (RFC 9162 §2.1). From raw's
hash up its path to the root of a tree, and from there to the nonce. docs/attestation.md §8 has the bytes.
"""

from __future__ import annotations

import hashlib
import re

from ..common.checks import CheckFailure
from ..proto.attestation.batch import MAX_LEAVES, Batch, sides_of
from ..proto.strict_json import whole_number

_LEAF = b"\0countersign/batch-leaf/v1\0"
_NODE = b"\1"
_NONCE = b"countersign/batch-nonce/v1\0"
_HASH = re.compile("[0-9a-f]{64}")


def check_batch(batch: object, raw_hash: str, nonce: str) -> Batch:
    """
    Checks that a nonce commits to this raw among others (RFC 9162 §2.1.3.2).
    @param batch an attestation's member, as it came. @param raw_hash SHA-256 of raw in hex. @param nonce 64 lowercase
    hex digits.
    Returns the member, read.
    @raises CheckFailure: batch_malformed, batch_proof_invalid
    """
    read = read_batch(batch)
    if batch_nonce(raw_hash, read) != nonce:
        raise CheckFailure("batch_proof_invalid", "the path leads from raw to another nonce")
    return read


def batch_nonce(raw_hash: str, batch: Batch) -> str:
    """The nonce that commits to the raw of this hash, in hex."""
    digest = _sha256(_LEAF + bytes.fromhex(batch.salt) + bytes.fromhex(raw_hash))
    for side, sibling in zip(sides_of(batch.leaf_index, batch.tree_size), batch.path, strict=True):
        other = bytes.fromhex(sibling)
        digest = _sha256(_NODE + (other + digest if side == "left" else digest + other))
    # A path alone does not fix the size of its tree, so the nonce does.
    return _sha256(_NONCE + batch.tree_size.to_bytes(8, "big") + digest).hex()


def read_batch(member: object) -> Batch:
    """@param member `batch`, as it came. @raises CheckFailure: batch_malformed"""
    it = member if isinstance(member, dict) else {}
    if not it.keys() <= {"salt", "leaf_index", "tree_size", "path"}:
        raise _bad("batch has a member that is not known")
    tree_size, leaf_index = whole_number(it.get("tree_size")), whole_number(it.get("leaf_index"))
    if tree_size is None or leaf_index is None or not 0 <= leaf_index < tree_size <= MAX_LEAVES:
        raise _bad(f"tree_size is not 1 to {MAX_LEAVES}, or leaf_index not less")
    length = len(list(sides_of(leaf_index, tree_size)))
    path, salt = it.get("path"), it.get("salt")
    if not isinstance(path, list) or len(path) != length:
        raise _bad(f"the path of this leaf is not a list of {length}")
    if not _is_hash(salt) or not all(_is_hash(one) for one in path):
        raise _bad("salt and hashes are not 64 lowercase hex digits each")
    return Batch(str(salt), leaf_index, tree_size, tuple(path))


def _bad(message: str) -> CheckFailure:
    return CheckFailure("batch_malformed", message)


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

"""The tree of a batch (RFC 9162 §2.1): an answer's place in it, and the sides of its path. docs/attestation.md §8 has the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

MAX_LEAVES = 4096


@dataclass(frozen=True)
class Batch:
    """The member `batch` of an attestation."""

    salt: str
    """32 random bytes of this leaf alone, in hex: without it a neighbour could confirm a guess of this leaf's raw."""
    leaf_index: int
    """From 0. The order of leaves is random."""
    tree_size: int
    """At most MAX_LEAVES."""
    path: tuple[str, ...]
    """Hashes in hex from the leaf's sibling upwards."""


def sides_of(leaf_index: int, tree_size: int) -> Iterator[Literal["left", "right"]]:
    """Of each entry of a leaf's path, the side on which it stands (RFC 9162 §2.1.3.2). The path has exactly as many."""
    index, last = leaf_index, tree_size - 1
    while last > 0:
        if index % 2 == 1:
            yield "left"
        elif index < last:
            yield "right"
        index >>= 1
        last >>= 1

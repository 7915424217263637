"""`countersign expand`: a compact attestation becomes the whole one, in the file that carries it."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from ..binding.bundle import check_bundle
from ..binding.exchange import attestation_of
from ..binding.input import attestation_in, read_input
from ..common.bundles import fetch_bundle
from ..common.checks import UNAVAILABLE, CheckFailure
from ..proto.attestation.attestation import Attestation
from ..proto.bytes import utf8
from ..proto.strict_json import stringify
from .bundle_files import bundles_in
from .kinds import INPUT_LIMITS, FileKind
from .report import plain


def expand(args: argparse.Namespace, kind: FileKind, text: str, data: bytes) -> int:
    """Prints the whole file. What is whole already is printed as it is. Returns the exit status."""
    ask = None if args.url is None else partial(fetch_bundle, args.url)
    try:
        carried = attestation_of(data, INPUT_LIMITS) if kind == "stream" else text
        given = read_input(carried, INPUT_LIMITS, event=True)
        if given.bundle is None:
            return _print(text)
        found = check_bundle(given.attestation, given.bundle, bundles_in(args.bundle, ask), INPUT_LIMITS)
    except CheckFailure as failure:
        print(f"countersign: {failure.code}: {plain(failure.message)}", file=sys.stderr)
        return 3 if failure.code in UNAVAILABLE else 1
    compact = attestation_in(carried)
    return _print(_expanded(text, carried if compact is None else compact, found.value.attestation))


def _expanded(text: str, compact: str, whole: Attestation) -> str:
    """
    @param compact an attestation by itself is the whole text: within a JSON string the quotes of what takes its place
    would be escaped.
    """
    json = stringify(whole.to_dict())
    return json if compact == text else text.replace(compact, json, 1)


def _print(text: str) -> int:
    """With one line end behind it, in UTF-8 whatever the terminal's encoding is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(utf8(text.removesuffix("\n") + "\n"))
    sys.stdout.buffer.flush()
    return 0

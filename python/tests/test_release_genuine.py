"""Genuine bundles of Sigstore's public conformance set: what its name says must be refused is refused, and the others verify."""

from __future__ import annotations

import json

import pytest

from countersign_verify.proto.bytes import from_base64
from countersign_verify.release import CheckFailure
from countersign_verify.release.bundle import ReleaseBundle, read_bundle, read_material
from countersign_verify.release.form import FormError
from countersign_verify.release.public_root import PUBLIC_ROOT
from countersign_verify.release.signed import verify_signed
from countersign_verify.release.trusted_root import read_trusted_root
from genuine import FOLDER, genuine, named_in, needs_genuine

NAMES = named_in("sigstore")
# What those without an envelope are signatures of.
ARTIFACT = b"""DO NOT MODIFY ME!

this is "a.txt", a sample input for sigstore-conformance's test suite.

DO NOT MODIFY ME!
"""


def verify(name: str) -> None:
    own = (FOLDER / "sigstore" / name / "trusted_root.json").is_file()
    root = read_trusted_root(genuine(f"sigstore/{name}/trusted_root.json").decode() if own else PUBLIC_ROOT)
    text = genuine(f"sigstore/{name}/bundle.sigstore.json").decode()
    given = json.loads(text)
    if "dsseEnvelope" in given:
        verify_signed(read_bundle(text), root, None)
        return
    signature = from_base64(given["messageSignature"]["signature"])
    material = read_material(given["verificationMaterial"])
    verify_signed(ReleaseBundle(material, signature, signed=ARTIFACT, payload=ARTIFACT), root, None)


@needs_genuine
@pytest.mark.parametrize("name", NAMES)
def test_conformance(name: str) -> None:
    if name.endswith("_fail"):
        with pytest.raises((CheckFailure, FormError, ValueError)):
            verify(name)
    else:
        verify(name)


@needs_genuine
def test_the_set_has_both() -> None:
    refused = [name for name in NAMES if name.endswith("_fail")]
    assert len(refused) > 10
    assert len(NAMES) - len(refused) > 5

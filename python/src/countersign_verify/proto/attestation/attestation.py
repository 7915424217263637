"""An attestation and its evidence, as they travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..strict_json import Json


@dataclass(frozen=True)
class Evidence:
    """One device's evidence: an SPDM measurement report and the certificate chain of the key that signed it."""

    arch: str
    """As NVIDIA's own tools name it in evidence files: `HOPPER`, `BLACKWELL`; `LS10` for a switch."""
    report: str = field(repr=False)
    """base64 of the SPDM GET_MEASUREMENTS request followed by the signed MEASUREMENTS response."""
    certificate_chain: str = field(repr=False)
    """base64 of the PEM chain, leaf first."""

    def to_dict(self) -> dict[str, Any]:
        return {"arch": self.arch, "report": self.report, "certificate_chain": self.certificate_chain}


@dataclass(frozen=True)
class Attestation:
    """What a client stores and anyone can verify."""

    raw: str = field(repr=False)
    nonce: str
    token: str = field(repr=False)
    evidence: tuple[Evidence, ...] | None = None
    """None: the attestation came without."""
    batch: object = None
    """As it came, where the nonce commits to many answers: batch.py says what is wrong with it."""
    has_batch: bool = False
    cpu: Mapping[str, Json] | None = None
    """Evidence of the processor whose session the answer was signed in, as it came."""

    def to_dict(self) -> dict[str, Any]:
        evidence = {} if self.evidence is None else {"evidence": [one.to_dict() for one in self.evidence]}
        batch = {"batch": self.batch} if self.has_batch else {}
        cpu = {} if self.cpu is None else {"cpu": dict(self.cpu)}
        return {"raw": self.raw, "nonce": self.nonce, "token": self.token, **evidence, **batch, **cpu}

"""
Verifies Countersign's attestations: that an NVIDIA GPU signed exactly what was asked and answered.

```python
from countersign_verify import Expected, create_collateral, verify_attestation

verified = verify_attestation(response_text, collateral=create_collateral(online=True), expected=Expected(request=body))
print(verified.level, verified.exchange.response)
```
"""

from .attestation import Appraised, appraise_attestation, verify_attestation, verify_many
from .binding.batch import check_batch
from .binding.exchange import is_transcript
from .binding.input import attestation_in
from .clients.client import verifying_async_client, verifying_client
from .clients.transcript import TranscriptFile, TranscriptRecord
from .clients.unproven_error import UnprovenAnswerError
from .common.bundles import Bundle, Bundles, fetch_bundle
from .common.checks import (
    CHECKS,
    CPU_CHECKS,
    RELEASE_CHECKS,
    Check,
    CheckFailure,
    FailureCode,
    Limits,
    VerificationError,
)
from .common.release_options import ReleaseClaims, ReleaseOptions, ReleaseStatus, ReleaseWeights
from .common.version import __version__ as __version__
from .cpu.cpu_options import (
    CpuClaims,
    CpuCollateral,
    CpuExpected,
    CpuOptions,
    CpuPolicy,
    CpuRoots,
    CpuSoftware,
    CpuWithout,
    TdxCollateral,
    VerifiedSession,
)
from .cpu.evidence.snp_report import PRODUCTS
from .cpu.verify_cpu import CpuReport, appraise_cpu, verify_cpu
from .evidence import appraise_evidence, verify_evidence
from .gpu.collateral import Collateral, OcspAnswer, OcspQuery, RimQuery, create_collateral
from .gpu.devices import Without
from .gpu.topology import DeviceClaims
from .policy.options import (
    LEVELS,
    BatchClaims,
    Claims,
    Clocks,
    Exchange,
    Expected,
    Level,
    Policy,
    Roots,
    TokenClaims,
    VerificationReport,
    Verified,
    VerifyOptions,
)
from .proto.attestation.attestation import Attestation, Evidence
from .session import SessionReport, appraise_session, verify_session
from .token import NRAS_KEYS_URL
from .token.signature import Jwks

__all__ = [
    "CHECKS",
    "CPU_CHECKS",
    "LEVELS",
    "NRAS_KEYS_URL",
    "PRODUCTS",
    "RELEASE_CHECKS",
    "Appraised",
    "Attestation",
    "BatchClaims",
    "Bundle",
    "Bundles",
    "Check",
    "CheckFailure",
    "Claims",
    "Clocks",
    "Collateral",
    "CpuClaims",
    "CpuCollateral",
    "CpuExpected",
    "CpuOptions",
    "CpuPolicy",
    "CpuReport",
    "CpuRoots",
    "CpuSoftware",
    "CpuWithout",
    "DeviceClaims",
    "Evidence",
    "Exchange",
    "Expected",
    "FailureCode",
    "Jwks",
    "Level",
    "Limits",
    "OcspAnswer",
    "OcspQuery",
    "Policy",
    "ReleaseClaims",
    "ReleaseOptions",
    "ReleaseStatus",
    "ReleaseWeights",
    "RimQuery",
    "Roots",
    "SessionReport",
    "TdxCollateral",
    "TokenClaims",
    "TranscriptFile",
    "TranscriptRecord",
    "UnprovenAnswerError",
    "VerificationError",
    "VerificationReport",
    "Verified",
    "VerifiedSession",
    "VerifyOptions",
    "Without",
    "appraise_attestation",
    "appraise_cpu",
    "appraise_evidence",
    "appraise_session",
    "attestation_in",
    "check_batch",
    "create_collateral",
    "fetch_bundle",
    "is_transcript",
    "verify_attestation",
    "verify_cpu",
    "verify_evidence",
    "verify_many",
    "verify_session",
    "verifying_async_client",
    "verifying_client",
]

"""
Verifies Countersign's attestations: that an NVIDIA GPU signed exactly what was asked and answered.

```python
from countersign_verify import Expected, create_collateral, verify_attestation

verified = verify_attestation(response_text, collateral=create_collateral(online=True), expected=Expected(request=body))
print(verified.level, verified.exchange.response)
```
"""

from .attestation import appraise_attestation, verify_attestation
from .batch import check_batch
from .checks import CHECKS, CPU_CHECKS, Check, CheckFailure, FailureCode, Limits, VerificationError
from .client import verifying_async_client, verifying_client
from .collateral import create_collateral
from .cpu.options import (
    PRODUCTS,
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
from .cpu.verify import CpuReport, appraise_cpu, verify_cpu
from .evidence import appraise_evidence, verify_evidence
from .exchange import is_transcript
from .input import Attestation, Evidence, attestation_in
from .options import (
    LEVELS,
    BatchClaims,
    Claims,
    Clocks,
    Collateral,
    DeviceClaims,
    Exchange,
    Expected,
    Jwks,
    Level,
    OcspAnswer,
    OcspQuery,
    Policy,
    RimQuery,
    Roots,
    TokenClaims,
    VerificationReport,
    Verified,
    VerifyOptions,
    Without,
)
from .session import SessionReport, appraise_session, verify_session
from .tokens import NRAS_KEYS_URL
from .unproven import UnprovenAnswerError

__version__ = "0.2.0"

__all__ = [
    "CHECKS",
    "CPU_CHECKS",
    "LEVELS",
    "NRAS_KEYS_URL",
    "PRODUCTS",
    "Attestation",
    "BatchClaims",
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
    "RimQuery",
    "Roots",
    "SessionReport",
    "TdxCollateral",
    "TokenClaims",
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
    "is_transcript",
    "verify_attestation",
    "verify_cpu",
    "verify_evidence",
    "verify_session",
    "verifying_async_client",
    "verifying_client",
]

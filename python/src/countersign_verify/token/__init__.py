"""
Tokens: JSON Web Tokens (RFC 7515, RFC 7519), alone or in the bundles that NVIDIA's verifiers make. What `parse_token`
returns is not verified until `check_token_digests` and `verify_token_signature` have passed.
"""

from .digests import check_token_digests
from .signature import NRAS_KEYS_URL, verify_token_signature
from .token import ParsedToken, TokenDevice, parse_token

__all__ = [
    "NRAS_KEYS_URL",
    "ParsedToken",
    "TokenDevice",
    "check_token_digests",
    "parse_token",
    "verify_token_signature",
]

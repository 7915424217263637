"""
Bytes and their texts: hex, base64, UTF-8. A text is measured and encoded as UTF-16 has it, so that limits are those of
verify/common/bytes.ts.
"""

import base64
import re

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_BASE64_URL = re.compile(r"[A-Za-z0-9_-]*")


class EncodingError(ValueError):
    """A text is not what its encoding allows."""


def from_hex(text: str) -> bytes:
    """Either case. @raises EncodingError"""
    if _HEX.fullmatch(text) is None:
        raise EncodingError("not hexadecimal")
    return bytes.fromhex(text)


def from_base64(text: str) -> bytes:
    """RFC 4648 §4, padded; unused bits may be set. @raises EncodingError"""
    if len(text) % 4 != 0 or _BASE64.fullmatch(text) is None:
        raise EncodingError("not base64")
    return base64.b64decode(text)


def from_base64url(text: str) -> bytes:
    """RFC 4648 §5, without padding. @raises EncodingError"""
    if len(text) % 4 == 1 or _BASE64_URL.fullmatch(text) is None:
        raise EncodingError("not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def to_base64url(data: bytes) -> str:
    """RFC 4648 §5, without padding."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def utf8(text: str) -> bytes:
    """A surrogate that stands alone becomes U+FFFD, as the WHATWG's encoder has it."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def from_utf8(data: bytes) -> str:
    """Without a byte order mark at its beginning. @raises EncodingError"""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as cause:
        raise EncodingError("not UTF-8") from cause


def is_well_formed(text: str) -> bool:
    """Whether no surrogate stands alone."""
    try:
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return False
    return True


def length(text: str) -> int:
    """In UTF-16 code units, in which every limit on a text is stated."""
    return len(text) if text.isascii() else len(text) + sum(1 for one in text if one > "\uffff")


def is_longer(text: str, most: float) -> bool:
    """Whether a text has more than so many UTF-16 code units."""
    return len(text) > most or (2 * len(text) > most and length(text) > most)

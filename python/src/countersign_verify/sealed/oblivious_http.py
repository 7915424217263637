"""Chunked Oblivious HTTP (RFC 9458, draft-ietf-ohai-chunked-ohttp) from the client's side: key configurations, sealed requests, and
opening the responses to them. HPKE is pyhpke's, with X25519: it has no hybrid with ML-KEM."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, ContextInterface, KDFId, KEMId, KEMKey, PyHPKEError

from .errors import SealedError, malformed, too_large, truncated
from .parser import Parser, Steps, varint

REQUEST_MEDIA_TYPE: Final = "message/ohttp-chunked-req"
RESPONSE_MEDIA_TYPE: Final = "message/ohttp-chunked-res"
MAX_CHUNK_BYTES: Final = 16 * 1024
"""What every receiver must take (§3), and the most that is sealed in a chunk."""
MAX_CHUNKS: Final = 2**32
"""Far below where a nonce would repeat; at 16 KiB a chunk it is 64 TiB."""
MAX_KEYS_BYTES: Final = 3_072
"""A document of more is none of a gateway's."""

_REQUEST_LABEL = b"message/bhttp chunked request"
_RESPONSE_LABEL = b"message/bhttp chunked response"
_FINAL = b"final"
_TAG_BYTES = 16
_MAX_SEALED_BYTES = MAX_CHUNK_BYTES + _TAG_BYTES
_NONCE_BYTES = 12

_KDF = KDFId.HKDF_SHA256
_AEADS = {AEADId.AES128_GCM.value: (AEADId.AES128_GCM, 16), AEADId.AES256_GCM.value: (AEADId.AES256_GCM, 32)}
"""Those of ours, and the bytes of their keys."""
_PUBLIC_KEY_BYTES = {KEMId.DHKEM_X25519_HKDF_SHA256.value: 32, 0x647A: 1216}
"""The second is the hybrid of ML-KEM-768 and X25519: its configurations are read, and passed over."""


@dataclass(frozen=True)
class SealingKey:
    """A public key, ready to seal to."""

    key_id: int
    public_key: X25519PublicKey
    aead: AEADId
    aead_key_bytes: int


def choose_key(document: bytes) -> SealingKey:
    """The first key of a document (RFC 9458 §3.2) that can be sealed to. @raises SealedError: sealed_malformed, sealed_unsupported"""
    if len(document) > MAX_KEYS_BYTES:
        raise malformed()
    chosen = None
    while document:
        length = _u16(document, 0)
        configuration, document = document[2 : 2 + length], document[2 + length :]
        if len(configuration) != length:
            raise malformed()
        chosen = chosen or _read_configuration(configuration)
    if chosen is None:
        raise SealedError("sealed_unsupported")
    return chosen


def _read_configuration(data: bytes) -> SealingKey | None:
    """One configuration, without its length (§3.1). None: its algorithms are none of ours."""
    kem_id = _u16(data, 1)
    length = _PUBLIC_KEY_BYTES.get(kem_id)
    if length is None:
        return None
    at = 3 + length
    pairs_bytes = _u16(data, at)
    if pairs_bytes == 0 or pairs_bytes % 4 != 0 or len(data) != at + 2 + pairs_bytes:
        raise malformed()
    if kem_id != KEMId.DHKEM_X25519_HKDF_SHA256.value:
        return None
    for pair in range(at + 2, len(data), 4):
        aead = _AEADS.get(_u16(data, pair + 2))
        if _u16(data, pair) == _KDF.value and aead is not None:
            return SealingKey(data[0], X25519PublicKey.from_public_bytes(data[3:at]), *aead)
    return None


def _u16(data: bytes, at: int) -> int:
    if at + 2 > len(data):
        raise malformed()
    return int.from_bytes(data[at : at + 2], "big")


class RequestSealer:
    """Seals one request, as its message comes, and opens the response to it."""

    def __init__(self, key: SealingKey) -> None:
        """@raises SealedError: sealed_malformed where the public key is none of its KEM."""
        kem = KEMId.DHKEM_X25519_HKDF_SHA256
        ids = struct.pack(">BHHH", key.key_id, kem.value, _KDF.value, key.aead.value)
        suite = CipherSuite.new(kem, _KDF, key.aead)
        try:
            enc, self._context = suite.create_sender_context(
                KEMKey.from_pyca_cryptography_key(key.public_key), info=_REQUEST_LABEL + b"\0" + ids
            )
        except (PyHPKEError, ValueError) as cause:
            raise malformed() from cause
        self._key = key
        self._enc = enc
        self._head = ids + enc
        self._waiting = b""

    def seal(self, part: bytes) -> Iterator[bytes]:
        """The next part of the message. One chunk waits, for it may be the last."""
        for at in range(0, len(part), MAX_CHUNK_BYTES):
            if self._waiting:
                yield self._chunk(self._waiting, is_final=False)
            self._waiting = part[at : at + MAX_CHUNK_BYTES]

    def end(self) -> bytes:
        """What ends the message."""
        return self._chunk(self._waiting, is_final=True)

    def _chunk(self, part: bytes, is_final: bool) -> bytes:
        sealed = self._context.seal(part, _FINAL if is_final else b"")
        # The first chunk goes out with the head.
        head, self._head = self._head, b""
        return head + varint(0 if is_final else len(sealed)) + sealed

    def response_parser(self) -> ResponseOpener:
        return ResponseOpener(self._context, self._enc, self._key.aead_key_bytes)


class ResponseOpener(Parser):
    """Opens the response to one request. Only when it has ended is the response whole; what follows the last chunk cannot be opened."""

    def __init__(self, context: ContextInterface, enc: bytes, key_bytes: int) -> None:
        super().__init__()
        self._enc = enc
        self._key_bytes = key_bytes
        # Of the nonce too: it is as long as the longer of the AEAD's key and nonce (§6.2).
        self._secret_bytes = max(key_bytes, _NONCE_BYTES)
        self._secret = context.export(_RESPONSE_LABEL, self._secret_bytes)

    def steps(self) -> Steps[None]:
        response_nonce = yield from self.incoming.take(self._secret_bytes)
        cipher, nonce = self._keys(self._enc + response_nonce)
        for counter in range(MAX_CHUNKS):
            length = yield from self.incoming.varint()
            is_final = length == 0
            if length > _MAX_SEALED_BYTES:
                raise too_large()
            # A chunk of nothing but its tag has no content, and only the last may have none.
            if not is_final and length <= _TAG_BYTES:
                raise malformed()
            sealed = (
                (yield from self.incoming.rest(_MAX_SEALED_BYTES))
                if is_final
                else (yield from self.incoming.take(length))
            )
            if sealed is None:
                raise too_large()
            if len(sealed) < _TAG_BYTES:
                raise truncated()
            try:
                chunk = cipher.decrypt(_with_counter(nonce, counter), sealed, _FINAL if is_final else b"")
            except InvalidTag:
                # Neither the bytes nor the cause say more.
                raise SealedError("sealed_not_opened") from None
            if chunk:
                self.handed.append(chunk)
            if is_final:
                return
        raise too_large()

    def _keys(self, salt: bytes) -> tuple[AESGCM, bytes]:
        def derived(label: bytes, length: int) -> bytes:
            return HKDF(algorithm=SHA256(), length=length, salt=salt, info=label).derive(self._secret)

        return AESGCM(derived(b"key", self._key_bytes)), derived(b"nonce", _NONCE_BYTES)


def _with_counter(nonce: bytes, counter: int) -> bytes:
    return (int.from_bytes(nonce, "big") ^ counter).to_bytes(_NONCE_BYTES, "big")

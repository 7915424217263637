"""The gateway's side of sealed messages, for tests: keys, opened requests, sealed responses."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, ContextInterface, KDFId, KEMId, KEMKey

from countersign_verify.sealed.binary_http import Field
from countersign_verify.sealed.parser import Incoming, Parser, Steps, varint

X25519, HKDF_SHA256 = KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256


@dataclass(frozen=True)
class PeerKey:
    key_id: int
    aead: AEADId = AEADId.AES128_GCM
    private: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    @property
    def configuration(self) -> bytes:
        public = self.private.public_key().public_bytes_raw()
        return struct.pack(">BH", self.key_id, X25519.value) + public + struct.pack(">HHH", 4, 1, self.aead.value)

    @property
    def document(self) -> bytes:
        return struct.pack(">H", len(self.configuration)) + self.configuration

    def context(self, ids: bytes, enc: bytes) -> ContextInterface:
        suite = CipherSuite.new(X25519, HKDF_SHA256, self.aead)
        key = KEMKey.from_pyca_cryptography_key(self.private)
        return suite.create_recipient_context(enc, key, info=b"message/bhttp chunked request\0" + ids)


class UnknownKeyError(Exception):
    """None of the keys opens the request."""


@dataclass
class Opened:
    message: bytes
    sealer: ResponseSealer
    enc: bytes


def open_request(keys: Sequence[PeerKey], data: bytes) -> Opened:
    """:raises UnknownKeyError: :raises pyhpke.OpenError: :raises SealedError:"""
    ids, enc = data[:7], data[7:39]
    key = next((key for key in keys if ids == struct.pack(">BHHH", key.key_id, 0x20, 1, key.aead.value)), None)
    if key is None:
        raise UnknownKeyError
    context = key.context(ids, enc)
    chunks = _Chunks(context)
    message = b"".join([*chunks.feed(data[39:]), *chunks.end()])
    return Opened(message, ResponseSealer(context, enc, 32 if key.aead is AEADId.AES256_GCM else 16), enc)


class _Chunks(Parser):
    def __init__(self, context: ContextInterface) -> None:
        super().__init__()
        self._context = context

    def steps(self) -> Steps[None]:
        while (length := (yield from self.incoming.varint())) > 0:
            self.handed.append(self._context.open((yield from self.incoming.take(length))))
        last = yield from self.incoming.rest(1 << 20)
        self.handed.append(self._context.open(last or b"", b"final"))


class ResponseSealer:
    def __init__(self, context: ContextInterface, enc: bytes, key_bytes: int, nonce: bytes | None = None) -> None:
        self.secret = context.export(b"message/bhttp chunked response", key_bytes)
        self.nonce = os.urandom(key_bytes) if nonce is None else nonce

        def derived(label: bytes, length: int) -> bytes:
            return HKDF(algorithm=SHA256(), length=length, salt=enc + self.nonce, info=label).derive(self.secret)

        self.key, self.base = derived(b"key", key_bytes), derived(b"nonce", 12)
        self._counter = 0

    def seal(self, part: bytes, is_final: bool) -> bytes:
        iv = (int.from_bytes(self.base, "big") ^ self._counter).to_bytes(12, "big")
        sealed = AESGCM(self.key).encrypt(iv, part, b"final" if is_final else b"")
        head = self.nonce if self._counter == 0 else b""
        self._counter += 1
        return head + varint(0 if is_final else len(sealed)) + sealed

    def all(self, parts: Sequence[bytes]) -> list[bytes]:
        return [self.seal(part, index == len(parts) - 1) for index, part in enumerate(parts)]


@dataclass(frozen=True)
class Inner:
    """A request, opened and read."""

    method: str
    scheme: str
    authority: str
    path: str
    fields: list[tuple[str, str]]
    content: bytes

    def header(self, name: str) -> str | None:
        return next((value for one, value in self.fields if one == name), None)


def read_inner(message: bytes) -> Inner:
    """A request of indeterminate length, as the client writes it."""
    data = Incoming()
    data.push(message)
    data.end()

    def read() -> Steps[Inner]:
        assert (yield from data.varint()) == 2
        control = []
        for _ in range(4):
            control.append((yield from data.take((yield from data.varint()))).decode())
        fields = []
        while length := (yield from data.varint()):
            name = yield from data.take(length)
            value = yield from data.take((yield from data.varint()))
            fields.append((name.decode("latin-1"), value.decode("latin-1")))
        content = b""
        while length := (yield from data.varint()):
            content += yield from data.take(length)
        assert (yield from data.varint()) == 0
        padding = yield from data.rest(1 << 20)
        assert padding is not None
        assert not padding.strip(b"\0")
        method, scheme, authority, path = control
        return Inner(method, scheme, authority, path, fields, content)

    steps = read()
    try:
        next(steps)
    except StopIteration as end:
        inner: Inner = end.value
        return inner
    raise AssertionError("the message is not whole")


def response_head(status: int, fields: Iterable[Field] = ()) -> bytes:
    lines = [varint(len(part)) + part for one in fields for part in one]
    return b"".join([varint(3), varint(status), *lines, varint(0)])

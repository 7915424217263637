"""The verifying clients over real sockets: proxies and certificates are found as plain httpx finds them."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from countersign_verify import verifying_async_client, verifying_client
from recorded import options, recorded

ANSWER = recorded("chat-whole")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.lower, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def server(certificate: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """Gives every request the recorded answer. :returns: its origin, and the target of each request."""
    targets: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            targets.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(ANSWER.answer)))
            self.end_headers()
            self.wfile.write(ANSWER.answer)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http{'' if certificate is None else 's'}://127.0.0.1:{listening.server_address[1]}", targets
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of this machine's own, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + encoded)
    return file


def post(kind: str, url: str, library: Any = httpx, **given: Any) -> bytes:
    given = {**options(), "library": library, **given}

    async def asynchronous() -> bytes:
        async with verifying_async_client(**given) as client:
            response = await client.post(url + ANSWER.endpoint, content=ANSWER.request)
            content: bytes = response.content
            return content

    if kind == "async":
        return asyncio.run(asynchronous())
    with verifying_client(**given) as client:
        content: bytes = client.post(url + ANSWER.endpoint, content=ANSWER.request).content
        return content


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("kind", ["sync", "async"])
class TestNetwork:
    def test_a_proxy_is_taken_from_the_environment_or_as_it_is_given(
        self, kind: str, library: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = "http://gateway.invalid"
        with server() as (proxy, targets):
            assert post(kind, url, library, proxy=proxy) == ANSWER.answer
            monkeypatch.setenv("HTTP_PROXY", proxy)
            assert post(kind, url, library) == ANSWER.answer
            assert targets == [url + ANSWER.endpoint] * 2
            with pytest.raises(library.ConnectError):
                post(kind, url, library, trust_env=False)
            mounts = {"http://": None}
            with pytest.raises(library.ConnectError):
                post(kind, url, library, mounts=mounts)
            assert len(targets) == 2

    def test_a_certificate_is_trusted_by_a_context_or_by_the_environment(
        self, kind: str, library: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with server(certificate) as (url, targets):
            with pytest.raises(library.ConnectError):
                post(kind, url, library)
            assert targets == []
            context = ssl.create_default_context(cafile=str(certificate))
            assert post(kind, url, library, verify=context) == ANSWER.answer
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert post(kind, url, library) == ANSWER.answer
            assert len(targets) == 2

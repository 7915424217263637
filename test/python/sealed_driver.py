"""The Python half of sealed-formats.python.ts: seals and opens what TypeScript opens and seals. A call a line, an outcome a line, as JSON;
bytes are in hex."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyhpke import AEADId

from countersign_verify.sealed.binary_http import END, ResponseParser, write_content, write_request_head
from countersign_verify.sealed.errors import SealedError
from countersign_verify.sealed.oblivious_http import RequestSealer, choose_key
from countersign_verify.sealed.parser import Parser
from sealed_peer import Opened, PeerKey, open_request, read_inner, response_head


def parts_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(parser: Parser, parts: list[bytes]) -> bytes:
    return b"".join([piece for part in parts for piece in parser.feed(part)] + parser.end())


def fields_of(given: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given]


class Driver:
    def __init__(self) -> None:
        self.keys: list[PeerKey] = []
        self.opened: list[Opened] = []
        self.sealers: list[RequestSealer] = []

    def key(self, key_id: int, aead: int) -> dict[str, Any]:
        self.keys.append(PeerKey(key_id, AEADId(aead)))
        return {"bytes": self.keys[-1].document.hex()}

    def seal_request(self, document: str, message: str, size: int) -> dict[str, Any]:
        sealer = RequestSealer(choose_key(bytes.fromhex(document)))
        self.sealers.append(sealer)
        sealed = [chunk for part in parts_of(bytes.fromhex(message), size) for chunk in sealer.seal(part)]
        return {"bytes": b"".join([*sealed, sealer.end()]).hex(), "number": len(self.sealers) - 1}

    def open_response(self, number: int, response: str, size: int) -> dict[str, Any]:
        return {"bytes": read(self.sealers[number].response_parser(), parts_of(bytes.fromhex(response), size)).hex()}

    def open_request(self, request: str) -> dict[str, Any]:
        opened = open_request(self.keys, bytes.fromhex(request))
        self.opened.append(opened)
        return {"bytes": opened.message.hex(), "number": len(self.opened) - 1}

    def seal_response(self, number: int, parts: list[str]) -> dict[str, Any]:
        sealed = self.opened[number].sealer.all([bytes.fromhex(part) for part in parts])
        return {"bytes": b"".join(sealed).hex()}

    def write_request(self, control: list[str], fields: list[list[str]], contents: list[str]) -> dict[str, Any]:
        method, scheme, authority, path = (text.encode("latin-1") for text in control)
        head = write_request_head(method, scheme, authority, path, fields_of(fields))
        return {"bytes": (head + b"".join(write_content(bytes.fromhex(one)) for one in contents) + END).hex()}

    def read_request(self, message: str) -> dict[str, Any]:
        inner = read_inner(bytes.fromhex(message))
        control = [inner.method, inner.scheme, inner.authority, inner.path]
        return {"control": control, "fields": inner.fields, "bytes": inner.content.hex()}

    def write_response(self, status: int, fields: list[list[str]], contents: list[str]) -> dict[str, Any]:
        head = response_head(status, fields_of(fields))
        return {"bytes": (head + b"".join(write_content(bytes.fromhex(one)) for one in contents) + END).hex()}

    def read_response(self, message: str, size: int) -> dict[str, Any]:
        parser = ResponseParser()
        content = read(parser, parts_of(bytes.fromhex(message), size))
        assert parser.head is not None
        fields = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in parser.head.fields]
        return {"status": parser.head.status, "fields": fields, "bytes": content.hex()}


def main() -> None:
    print(json.dumps("ready"), flush=True)
    driver = Driver()
    for line in sys.stdin:
        call = json.loads(line)
        try:
            outcome = getattr(driver, call.pop("call"))(**call)
        except SealedError as error:
            outcome = {"code": error.code}
        print(json.dumps(outcome), flush=True)


main()

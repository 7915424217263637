"""Sealed messages: the examples of RFC 9292, RFC 9458 and draft-ietf-ohai-chunked-ohttp, and what is cut, moved, doubled or changed."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyhpke import AEADId, OpenError

from countersign_verify.sealed.binary_http import (
    END,
    MAX_HEAD_BYTES,
    MAX_PADDING_BYTES,
    ResponseParser,
    write_content,
    write_request_head,
)
from countersign_verify.sealed.errors import SealedError
from countersign_verify.sealed.oblivious_http import RequestSealer, ResponseOpener, choose_key
from countersign_verify.sealed.parser import Parser
from sealed_peer import PeerKey, ResponseSealer, UnknownKeyError, open_request, read_inner, response_head

SIZES = [1, 2, 7, 1000]


def unhex(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


def read(parser: Parser, chunks: Sequence[bytes]) -> bytes:
    handed = [part for chunk in chunks for part in parser.feed(chunk)]
    return b"".join(handed + parser.end())


def in_chunks(data: bytes, size: int = 1000) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def code_of(run: Callable[[], Any]) -> str | None:
    try:
        run()
    except SealedError as error:
        return error.code
    return None


# RFC 9292 §5.1 and §5.2.
FIELDS = """0a757365722d6167656e74346375726c2f372e31362e33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e33
    04686f73740f7777772e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d69"""
REQUEST = unhex(f"0203474554056874747073000a2f68656c6c6f2e747874 {FIELDS} 000000")
RESPONSE = unhex(
    """0340660772756e6e696e670a22736c65657020313522004067046c696e6b233c2f7374796c652e6373733e3b2072656c3d7072656c6f61643b2061733d7374796c65
    046c696e6b243c2f7363726970742e6a733e3b2072656c3d7072656c6f61643b2061733d7363726970740040c804646174651d4d6f6e2c203237204a756c2032303039
    2031323a32383a353320474d540673657276657206417061636865 0d6c6173742d6d6f6469666965641d5765642c203232204a756c20323030392031393a31353a353620474d54
    0465746167142233346161333837 2d642d313536386562303022 0d6163636570742d72616e676573056279746573
    0e636f6e74656e742d6c656e677468023531 04766172790f4163636570742d456e636f64696e67 0c636f6e74656e742d747970650a746578742f706c61696e
    003348656c6c6f20576f726c6421204d7920636f6e74656e7420696e636c75646573206120747261696c696e672043524c462e0d0a0000""".replace(
        "2d642d31353638656230302220 0d", "2d642d313536386562303022 0d"
    )
)
CHUNKED_KNOWN = unhex(
    "0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a0d07747261696c65720474657874"
)


def test_a_request_is_written_as_rfc_9292_shows() -> None:
    fields = [
        (b"user-agent", b"curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"),
        (b"Host", b"www.example.com"),
        (b"accept-language", b"en, mi"),
    ]
    assert write_request_head(b"GET", b"https", b"", b"/hello.txt", fields) + END == REQUEST


@pytest.mark.parametrize("size", SIZES)
def test_the_responses_of_rfc_9292_are_read(size: int) -> None:
    parser = ResponseParser()
    assert read(parser, in_chunks(RESPONSE, size)) == b"Hello World! My content includes a trailing CRLF.\r\n"
    assert parser.head is not None
    assert parser.head.status == 200
    assert len(parser.head.fields) == 8
    assert parser.head.fields[4] == (b"accept-ranges", b"bytes")
    known = ResponseParser()
    assert read(known, in_chunks(CHUNKED_KNOWN, size)) == b"This content contains CRLF.\r\n"
    assert known.head is not None
    assert known.head.status == 200


SMALL = response_head(404, [(b"content-type", b"text/plain")]) + write_content(b"not ") + write_content(b"here") + END


def test_a_response_that_is_cut_is_refused_but_before_a_part_that_may_be_left_out() -> None:
    head_end = len(response_head(404, [(b"content-type", b"text/plain")]))
    may_end = [3, head_end, len(SMALL) - 1]
    for length in range(len(SMALL)):
        code = code_of(lambda length=length: read(ResponseParser(), [SMALL[:length]]))
        assert (length, code) == (length, None if length in may_end else "sealed_truncated")
    assert read(ResponseParser(), [SMALL]) == b"not here"


def field_of(name: bytes, value: bytes) -> bytes:
    return unhex("0340c8") + bytes([len(name)]) + name + bytes([len(value)]) + value + bytes(3)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (field_of(b"a b", b"c"), "sealed_malformed"),
        (field_of(b":path", b"/"), "sealed_malformed"),
        (field_of(b"a", b"b\nc"), "sealed_malformed"),
        (field_of(b"a", b"b\0c"), "sealed_malformed"),
        (field_of(b"a", b" b"), "sealed_malformed"),
        (field_of(b"a", b"b\t"), "sealed_malformed"),
        (REQUEST, "sealed_malformed"),
        (unhex("04"), "sealed_malformed"),
        (unhex("03425800"), "sealed_malformed"),
        (unhex("034063"), "sealed_malformed"),
        (SMALL + unhex("0001"), "sealed_malformed"),
        (unhex("0140c8ffffffffffffffff"), "sealed_malformed"),
        (unhex("0140c803016102626300 00"), "sealed_truncated"),
        (unhex("03") + unhex("406400") * 17 + unhex("40c8"), "sealed_too_large"),
        (response_head(200, [(b"a", b"x" * MAX_HEAD_BYTES)]), "sealed_too_large"),
        (response_head(200, [(b"a", b"b")] * 1_001), "sealed_too_large"),
        (unhex("0140c8bfffffff"), "sealed_too_large"),
        (SMALL + bytes(MAX_PADDING_BYTES + 1), "sealed_too_large"),
    ],
)
def test_what_is_no_response_is_refused(data: bytes, code: str) -> None:
    assert code_of(lambda: read(ResponseParser(), [data])) == code


def test_padding_is_dropped() -> None:
    assert read(ResponseParser(), [SMALL, bytes(MAX_PADDING_BYTES)]) == b"not here"


def test_no_header_is_written_that_could_not_be_read() -> None:
    for name, value in [(b"a:b", b"c"), (b"a", b"b\r\nc: d"), (b"", b"a"), (b"a", b" b")]:
        assert code_of(lambda n=name, v=value: write_request_head(b"GET", b"http", b"", b"/", [(n, v)])) == (
            "sealed_malformed"
        )


# RFC 9458, appendix A.
RFC_KEY = unhex("01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003")


def test_keys_are_read_as_in_rfc_9458() -> None:
    document = unhex("002d") + RFC_KEY
    key = choose_key(document)
    assert (key.key_id, key.aead) == (1, AEADId.AES128_GCM)
    assert key.public_key.public_bytes_raw() == RFC_KEY[3:35]


def test_keys_of_other_algorithms_are_passed_over() -> None:
    other = unhex("0007 05 7777 0102 0304")
    hybrid = unhex("04cb 06 647a") + os.urandom(1216) + unhex("0008 00010001 00010002")
    hybrid = len(hybrid[2:]).to_bytes(2, "big") + hybrid[2:]
    assert choose_key(other + hybrid + unhex("002d") + RFC_KEY).key_id == 1
    foreign_aead = unhex("0029") + RFC_KEY[:35] + unhex("000400010003")
    foreign_kdf = unhex("0029") + RFC_KEY[:35] + unhex("000400030001")
    for document in (b"", other, hybrid, foreign_aead, foreign_kdf):
        assert code_of(lambda d=document: choose_key(d)) == "sealed_unsupported"
    larger = unhex("0029") + RFC_KEY[:35] + unhex("000400010002")
    assert choose_key(larger).aead is AEADId.AES256_GCM


def test_keys_that_are_cut_or_too_large_are_refused() -> None:
    document = unhex("002d") + RFC_KEY
    for length in range(1, len(document)):
        assert code_of(lambda n=length: choose_key(document[:n])) == "sealed_malformed"
    assert code_of(lambda: choose_key(bytes(4_000))) == "sealed_malformed"
    assert code_of(lambda: choose_key(unhex("0025") + RFC_KEY[:35] + unhex("0000"))) == "sealed_malformed"
    # A point whose multiples are all zero is no key.
    low_order = unhex("0029 010020") + bytes(32) + unhex("000400010001")
    assert code_of(lambda: RequestSealer(choose_key(low_order))) == "sealed_malformed"


# The appendix of draft-ietf-ohai-chunked-ohttp.
DRAFT_KEY = PeerKey(
    1,
    private=X25519PrivateKey.from_private_bytes(
        unhex("1c190d72acdbe4dbc69e680503bb781a932c70a12c8f3754434c67d8640d8698")
    ),
)
DRAFT_REQUEST = unhex(
    """01002000010001 8811eb457e100811c40a0aa71340a1b81d804bb986f736f2f566a7199761a032
    1c2ad24942d4d692563012f2980c8fef437a336b9b2fc938ef77a5834f 1d2e33d8fd25577afe31bd1c79d094f76b6250ae6549b473ecd950501311
    001c6c1395d0ef7c1022297966307b8a7f"""
)
DRAFT_RESPONSE = unhex(
    """bcce7f4cb921309ba5d62edf1769ef09 1179bf1cc87fa0e2c02de4546945aa3d1e48
    12b348b5bd4c594c16b6170b07b475845d1f32 00ed9d8a796617a5b27265f4d73247f639"""
)


def draft_opener() -> ResponseOpener:
    return ResponseOpener(DRAFT_KEY.context(DRAFT_REQUEST[:7], DRAFT_REQUEST[7:39]), DRAFT_REQUEST[7:39], 16)


@pytest.mark.parametrize("size", SIZES)
def test_the_drafts_example(size: int) -> None:
    opened = open_request([DRAFT_KEY], DRAFT_REQUEST)
    assert opened.message == unhex("00034745540568747470730b6578616d706c652e636f6d012f")
    assert opened.sealer.secret == unhex("1d4484834ae36102a6ac42a5523454d9")
    assert read(draft_opener(), in_chunks(DRAFT_RESPONSE, size)) == unhex("0140c8")
    context = DRAFT_KEY.context(DRAFT_REQUEST[:7], DRAFT_REQUEST[7:39])
    sealer = ResponseSealer(context, DRAFT_REQUEST[7:39], 16, DRAFT_RESPONSE[:16])
    assert (sealer.key, sealer.base) == (
        unhex("8209f78f2a1610d80c7125009b00aff0"),
        unhex("fead854635d2d5527d64f546"),
    )
    assert b"".join(sealer.all([unhex("01"), unhex("40c8"), b""])) == DRAFT_RESPONSE


def test_the_drafts_example_cut_anywhere_is_refused() -> None:
    for length in range(len(DRAFT_RESPONSE)):
        for size in (1, 1000):
            chunks = in_chunks(DRAFT_RESPONSE[:length], size)
            assert code_of(lambda c=chunks: read(draft_opener(), c)) in (
                "sealed_truncated",
                "sealed_not_opened",
            )
    for length in range(len(DRAFT_REQUEST)):
        with pytest.raises((SealedError, OpenError, UnknownKeyError, ValueError)):
            open_request([DRAFT_KEY], DRAFT_REQUEST[:length])


def test_response_keys_are_derived_as_in_rfc_9458() -> None:
    class Exported:
        def export(self, _: bytes, __: int) -> bytes:
            return unhex("62d87a6ba569ee81014c2641f52bea36")

    enc = unhex("4b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472")
    sealer = ResponseSealer(Exported(), enc, 16, unhex("c789e7151fcba46158ca84b04464910d"))
    assert (sealer.key, sealer.base) == (
        unhex("5d0172a080e428b16d298c4ea0db620d"),
        unhex("f6bf1aeb88d6df87007fa263"),
    )
    sealed = AESGCM(sealer.key).encrypt(sealer.base, unhex("0140c8"), b"")
    assert sealed == unhex("86f9013e404feea014e7be4a441f234f857fbd")


# Messages of our own.


def sealed_request(message: bytes, key: PeerKey) -> tuple[RequestSealer, list[bytes]]:
    sealer = RequestSealer(choose_key(key.document))
    return sealer, [*sealer.seal(message), sealer.end()]


@pytest.mark.parametrize("aead", [AEADId.AES128_GCM, AEADId.AES256_GCM])
def test_a_request_and_its_response_come_back_whole(aead: AEADId) -> None:
    key = PeerKey(7, aead)
    rng = random.Random(1)
    for _ in range(100):
        message = rng.randbytes(rng.choice([0, 1, 5, 16_383, 16_384, 16_385, 50_000]))
        sealer, sealed = sealed_request(message, key)
        opened = open_request([PeerKey(8), key], b"".join(sealed))
        assert opened.message == message
        parts = [rng.randbytes(rng.randint(1, 400)) for _ in range(rng.randint(0, 5))] + [b""]
        response = b"".join(opened.sealer.all(parts))
        size = rng.choice([1, 11, 1000])
        assert read(sealer.response_parser(), in_chunks(response, size)) == b"".join(parts)


def test_a_request_is_chunks_of_at_most_16_kib() -> None:
    _, sealed = sealed_request(bytes(50_000), PeerKey(7))
    assert [len(chunk) for chunk in sealed] == [39 + 4 + 16_400, 4 + 16_400, 4 + 16_400, 1 + 16 + 50_000 - 3 * 16_384]


def opened_parts() -> tuple[RequestSealer, list[bytes]]:
    key = PeerKey(3)
    sealer, sealed = sealed_request(b"a request", key)
    return sealer, open_request([key], b"".join(sealed)).sealer.all([b"one ", b"two ", b"three ", b""])


@pytest.mark.parametrize(
    "order", [[0, 2, 3], [0, 1, 1, 2, 3], [0, 2, 1, 3], [0, 3], [1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 1]]
)
def test_a_response_whose_chunks_are_dropped_doubled_or_moved_is_refused(order: list[int]) -> None:
    sealer, chunks = opened_parts()
    with pytest.raises(SealedError) as refused:
        read(sealer.response_parser(), [chunks[i] for i in order])
    assert refused.value.code in ("sealed_not_opened", "sealed_truncated", "sealed_too_large", "sealed_malformed")


def test_a_response_that_is_cut_or_changed_anywhere_is_refused() -> None:
    sealer, chunks = opened_parts()
    whole = b"".join(chunks)
    assert read(sealer.response_parser(), [whole]) == b"one two three "
    for at in range(len(whole)):
        assert code_of(lambda n=at: read(sealer.response_parser(), [whole[:n]])) is not None
        for bit in (1, 0x40, 0x80):
            changed = bytearray(whole)
            changed[at] ^= bit
            assert code_of(lambda c=bytes(changed): read(sealer.response_parser(), [c])) is not None
    # A chunk in the middle that says it is the last.
    last = b"\0" + chunks[1][1:]
    assert code_of(lambda: read(sealer.response_parser(), [chunks[0], last])) == "sealed_not_opened"


def test_an_answer_to_another_request_or_in_the_clear_is_refused() -> None:
    sealer, _ = opened_parts()
    _, others = opened_parts()
    assert code_of(lambda: read(sealer.response_parser(), others)) == "sealed_not_opened"
    for plain in (b"", b"{}", b'{"error":{"code":"overloaded"}}', b'data: {"choices":[]}\n\n' * 9):
        assert code_of(lambda p=plain: read(sealer.response_parser(), [p])) is not None


def test_chunks_that_are_too_large_or_empty_and_not_the_last_are_refused() -> None:
    sealer, chunks = opened_parts()
    nonce = chunks[0][:16]
    for rest, code in [
        (unhex("80004011") + bytes(16_401), "sealed_too_large"),
        (b"\0" + bytes(16_401), "sealed_too_large"),
        (b"\x10" + bytes(16), "sealed_malformed"),
        (b"\0" + bytes(15), "sealed_truncated"),
    ]:
        assert code_of(lambda r=rest: read(sealer.response_parser(), [nonce + r])) == code


def test_a_request_to_the_key_of_another_session_is_not_opened() -> None:
    _, sealed = sealed_request(b"secret", PeerKey(7))
    with pytest.raises(OpenError):
        open_request([PeerKey(7)], b"".join(sealed))
    with pytest.raises(UnknownKeyError):
        open_request([PeerKey(8)], b"".join(sealed))


def test_content_is_handed_on_before_the_response_has_ended() -> None:
    sealer, chunks = opened_parts()
    parser = sealer.response_parser()
    assert parser.feed(chunks[0]) == [b"one "]
    assert parser.feed(chunks[1][:5]) == []
    assert parser.feed(chunks[1][5:]) == [b"two "]


def test_an_inner_request_is_read_back() -> None:
    head = write_request_head(b"POST", b"https", b"a.example", b"/v1/x?y=1", [(b"X-A", b"b")])
    inner = read_inner(head + write_content(b"hello ") + write_content(b"") + write_content(b"world") + END)
    assert (inner.method, inner.authority, inner.path, inner.fields) == (
        "POST",
        "a.example",
        "/v1/x?y=1",
        [("x-a", "b")],
    )
    assert inner.content == b"hello world"


def test_an_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(SealedError("edge_refused", 503, "7")))
    assert (error.code, error.status, error.retry_after) == ("edge_refused", 503, "7")
    assert str(error) == str(SealedError("edge_refused"))
    assert isinstance(error, OSError)

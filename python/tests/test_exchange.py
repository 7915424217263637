"""
What is compared with raw, and hostile input of every kind: each is refused with a code, and no other exception
escapes.
"""

import json
import math
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from countersign_verify import Expected, Limits, Policy, VerificationError, appraise_attestation, verify_attestation
from countersign_verify.binding.exchange import attestation_of, is_transcript
from countersign_verify.binding.json_equality import is_part_of, same_tokens, same_value
from countersign_verify.common.checks import CheckFailure
from countersign_verify.gpu.device_evidence import parse_chain
from countersign_verify.proto.stream.sse import NamedEvent, SseError, read_events, write_named_event
from countersign_verify.proto.strict_json import parse_keeping_numbers
from vectors import Vector, read_vectors

VECTORS = {vector.name: vector for vector in read_vectors()}
GOOD = VECTORS["form.pass.attestation"]
TEXT = json.dumps(GOOD.given)
DEEP = 100_000


def code(given: object, vector: Vector = GOOD, **changes: Any) -> str:
    options: Any = {**vector.options, **changes}
    try:
        verify_attestation(given, **options)
    except VerificationError as error:
        return error.code
    return "valid"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (TEXT, "valid"),
        (json.dumps(TEXT), "valid"),
        (f"\ufeff{TEXT}", "valid"),
        (f"\r\n{TEXT}\t ", "valid"),
        (f"\ufeff\ufeff{TEXT}", "not_json"),
        (f"\u00a0{TEXT}", "not_json"),
        (f"\x1c{TEXT}", "not_json"),
        (f"{TEXT}\0", "not_json"),
        ("[" * DEEP, "not_json"),
        ("[" * DEEP + "]" * DEEP, "not_an_attestation"),
        ('{"raw":' * DEEP + "1" + "}" * DEEP, "not_an_attestation"),
        (f'{{"x":{"[" * DEEP}{"]" * DEEP},{TEXT[1:]}', "unsigned_member"),
        ({**GOOD.given, "x": 1}, "unsigned_member"),
        ({**GOOD.given, "type": "response.completed", "response": {}}, "event_not_expected"),
        (f'{{"raw":{"9" * 100_000}}}', "not_an_attestation"),
        ('{"raw":NaN}', "not_json"),
        ('"' + "\\" * 1_000_000 + '"', "not_json"),
        (None, "not_an_attestation"),
        (5, "not_an_attestation"),
        ([], "not_an_attestation"),
        ({1: 2}, "not_an_attestation"),
        ((1, 2), "not_an_attestation"),
        ({**GOOD.given, "raw": math.nan}, "not_an_attestation"),
        ({**GOOD.given, "evidence": True}, "not_an_attestation"),
        ({**GOOD.given, "batch": None}, "batch_malformed"),
        ({**GOOD.given, "batch": [[]]}, "batch_malformed"),
        ({**GOOD.given, "token": "[" * 50_000}, "token_malformed"),
        ({**GOOD.given, "token": "." * 50_000}, "token_malformed"),
        ({**GOOD.given, "token": "[" + "9" * 50_000 + "]"}, "token_malformed"),
        ({**GOOD.given, "cpu": None}, "not_an_attestation"),
        ({**GOOD.given, "cpu": {}}, "cpu_malformed"),
        ({**GOOD.given, "raw": GOOD.given["raw"] + "\ud800"}, "raw_hash_mismatch"),
        ({**GOOD.given, "choices": []}, "unsigned_member"),
        (b"", "not_an_attestation"),
        (b"\xff", "stream_malformed"),
        (b"data: \xff\n\n", "stream_malformed"),
        (b"\xef\xbb\xbfdata: {}\n\n", "stream_malformed"),
        (bytearray(b"data: {}\n\n"), "not_an_attestation"),
        (b"data: [DONE]\n\ndata: {}\n\n", "stream_malformed"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_hostile_input_has_a_code(given: object, expected: str) -> None:
    assert code(given) == expected


def test_lone_surrogates_are_no_text_that_could_have_been_hashed() -> None:
    replaced = TEXT.replace("Paris", "\\ud800") if "Paris" in TEXT else TEXT.replace('\\"model\\"', '\\"\\ud800\\"')
    assert replaced != TEXT
    assert code(replaced) == "raw_hash_mismatch"


def test_limits_are_counted_as_the_other_verifier_counts_them() -> None:
    assert code(TEXT, limits=Limits(max_characters=len(TEXT))) == "valid"
    assert code(TEXT, limits=Limits(max_characters=len(TEXT) - 1)) == "too_large"
    assert code("😀" * 5, limits=Limits(max_characters=9)) == "too_large"
    assert code("😀" * 5, limits=Limits(max_characters=10)) == "not_json"
    assert code(TEXT, limits=Limits(max_values=3)) == "too_large"
    with pytest.raises(TypeError):
        code(TEXT, limits=Limits(max_values=math.nan))


@pytest.mark.parametrize(
    "options",
    [
        {"policy": Policy(max_age_seconds=math.nan)},
        {"policy": Policy(max_age_seconds=-1)},
        {"policy": Policy(max_batch=0)},
        {"policy": Policy(max_batch=True)},
        {"policy": Policy(min_level="high")},  # type: ignore[arg-type]
        {"policy": Policy(required_checks="form")},
        {"policy": {"max_age_seconds": 1}},
        {"expected": Expected(challenge="00")},
        {"expected": Expected(request=b"{}")},  # type: ignore[arg-type]
        {"expected": Expected(event=1)},  # type: ignore[arg-type]
        {"at": GOOD.options["at"].replace(tzinfo=None)},  # type: ignore[union-attr]
        {"at": "2025-06-01T12:00:00Z"},
        {"simulated_root": "no certificate"},
        {"unknown": 1},
    ],
    ids=repr,
)
def test_options_that_cannot_be_used_are_the_callers_fault(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        code(GOOD.given, **options)


def test_every_device_that_signed_must_be_one_that_the_caller_accepts() -> None:
    chain = parse_chain(GOOD.given["evidence"][0]["certificate_chain"])
    own, other = sha256(chain[1].spki).hexdigest(), "ab" * 32
    assert code(GOOD.given, policy=Policy(devices=[other])) == "device_not_accepted"
    assert code(GOOD.given, policy=Policy(devices=[])) == "device_not_accepted"
    assert code(GOOD.given, policy=Policy(devices=[other, own])) == "valid"
    for devices in ([own.upper()], ["ab"], own, [1]):
        with pytest.raises(TypeError):
            code(GOOD.given, policy=Policy(devices=devices))  # type: ignore[arg-type]


def test_white_space_between_tokens_does_not_count() -> None:
    signed = '{"a":[1.0,"x y"],"b":null}'
    assert same_tokens(' {"a" : [1.0,\n"x y"]\t,"b":null} ', signed)
    for other in (
        signed.replace("1.0", "1"),
        signed.replace("x y", "x  y"),
        signed.replace('"a"', '"\\u0061"'),
        signed.replace("1.0", "1 .0"),
        signed.replace("1.0", "1.0 0"),
        signed.replace(",", "\u00a0,"),
        "",
        f"{signed} x",
    ):
        assert not same_tokens(other, signed), other


def test_a_text_is_compared_with_a_signed_one_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr("countersign_verify.binding.json_equality.parse", parsed.append)
    assert not same_tokens("[" + "{}," * 1_000 + "{}]", '{"a":[1]}')
    assert not same_tokens('{"a', '{"a":[1]}')
    assert parsed == []
    assert same_tokens('{"a" : [1]}', '{"a":[1]}')
    assert parsed == ['{"a" : [1]}']


def test_values_are_the_same_whatever_the_order_of_their_members() -> None:
    assert same_value({"a": [1, {"b": None}], "c": "x"}, {"c": "x", "a": [1.0, {"b": None}]})
    for x, y in (
        ({"a": 1}, {"a": True}),
        ([], {}),
        ([1], [1, 1]),
        ({"a": None}, {}),
        ("1", 1),
        (math.nan, math.nan),
    ):
        assert not same_value(x, y)
    deep: Any = []
    other: Any = []
    for _ in range(DEEP):
        deep, other = [deep], [other]
    assert same_value(deep, other)
    assert same_value(12345678901234567890, parse_keeping_numbers("12345678901234567890"))


def test_a_part_stands_at_the_end_of_what_was_appended() -> None:
    whole: Any = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]
    }
    part: Any = {"choices": [{"index": 0, "message": {"role": None, "content": "lo"}, "finish_reason": "stop"}]}
    assert is_part_of(part, whole)
    part["choices"][0]["message"]["content"] = "Hel"
    assert not is_part_of(part, whole)
    part["choices"][0]["message"]["content"] = None
    whole["choices"][0]["message"]["content"] = [{"type": "image"}, {"type": "text", "text": "Hello"}]
    assert is_part_of(part, whole)
    part["choices"][0]["message"]["content"] = "lo"
    assert is_part_of(part, whole)
    part["choices"][0]["finish_reason"] = "p"
    assert not is_part_of(part, whole)
    assert is_part_of("\ude00", "😀", grows=True)


def test_the_values_of_a_transcript_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = VECTORS["expected_exchange.pass.chat-stream"]
    transcript = vector.options["expected"].transcript
    assert transcript is not None
    # The transcript carries no attestation: this one is the backend's.
    for most, wanted in ((1_000, ("valid", "not_an_attestation")), (50, ("too_large", "too_large"))):
        monkeypatch.setattr("countersign_verify.common.bounded_json._MAX_VALUES", most)
        with pytest.raises(CheckFailure) as raised:
            attestation_of(transcript, Limits())
        assert (code(vector.given, vector), raised.value.code) == wanted


def named(name: str) -> tuple[Any, dict[str, Any]]:
    """What a vector about one event gives, and the options with which the event is one."""
    vector = VECTORS[name]
    options: dict[str, Any] = {**vector.options, "expected": replace(vector.options["expected"], event=True)}
    return vector.given, options


LONE = ("form.pass.messages-event", "expected_exchange.pass.responses-event")


@pytest.mark.parametrize("name", LONE)
def test_one_event_counts_only_where_the_caller_says_that_it_is_one(name: str) -> None:
    given, options = named(name)
    text = given if isinstance(given, str) else json.dumps(given)
    for one in (text, json.loads(text)):
        assert verify_attestation(one, **options).valid
        with pytest.raises(VerificationError) as error:
            verify_attestation(one, **{**options, "expected": replace(options["expected"], event=False)})
        assert error.value.code == "event_not_expected"


@pytest.mark.parametrize("name", LONE)
@pytest.mark.parametrize("member", ["output", "text", "content", "choices", "x"])
def test_beside_one_event_stands_nothing_that_nobody_signed(name: str, member: str) -> None:
    given, options = named(name)
    event = json.loads(given) if isinstance(given, str) else given
    with pytest.raises(VerificationError) as error:
        verify_attestation(json.dumps({**event, member: "shown"}), **options)
    assert error.value.code == ("unsigned_member" if "response" in event else "response_mismatch")


def test_streams_have_the_one_form() -> None:
    stream = b"\xef\xbb\xbf: \tcomment\r\nevent: a.b\r\ndata: 1\r\ndata:2\r\n\r\ndata: [DONE]\n\n\ndata: last"
    events = read_events(stream, 100)
    assert events == [NamedEvent("a.b", b"1\n2"), NamedEvent(None, b"[DONE]"), NamedEvent(None, b"last")]
    assert read_events(b"".join(map(write_named_event, events)), 100) == events
    for line in (
        *(
            b"id: 1",
            b"retry: 1",
            b"data",
            b" data: 1",
            b"event: a b",
            b"event:",
            b"event: " + b"a" * 129,
            b"event: \xc3",
        ),
        *(b": \xe2\x80\xa8", b": \x0b", b": \r x", b"data: a\rdata: b", b"event: a\nevent: a\ndata: 1", b"event: a\n"),
        *(b"\xef\xbb\xbfdata: 1", b"x"),
    ):
        with pytest.raises(SseError):
            read_events(b"data: 1\n\n" + line + b"\n\n", 1000)
    with pytest.raises(SseError):
        read_events(b"data: " + b"x" * 100 + b"\n\n", 100)


def test_a_saved_stream_is_known_by_its_beginning() -> None:
    for text in ("data: x", "\ufeffdata:", "\u2003: comment", "\n\nevent: a", "id:", ":"):
        assert is_transcript(text)
    for text in ('{"a":1}', "", "datum: x", "\x1cdata: x", "\x85:"):
        assert not is_transcript(text)


def test_nothing_of_the_answer_is_in_a_report_or_an_error() -> None:
    secret = "a very secret answer"
    given = {**GOOD.given, "raw": json.dumps({"request": {"x": secret}, "response": {}, "timestamp": 1})}
    report = appraise_attestation(given, **{**GOOD.options, "expected": Expected(request=secret, response=secret)})
    assert not report.valid
    assert secret not in json.dumps(report.to_dict())
    verified = verify_attestation(GOOD.given, **GOOD.options)
    assert verified.exchange.request not in repr(verified)
    assert verified.exchange.response not in repr(verified)

"""JSON is read and written as ECMAScript does it, where Python's own json is laxer, stricter or runs out of stack."""

import sys

import pytest

from countersign_verify.proto import strict_json
from countersign_verify.proto.json import (
    has_at_most,
    paired,
    top_level_members,
    with_last_member,
    without_member,
    without_space,
)
from countersign_verify.proto.strict_json import (
    JsonTextError,
    KeptNumber,
    duplicate_member,
    number_text,
    parse,
    parse_keeping_numbers,
    same_scalar,
    stringify,
)

DEEP = 100_000


@pytest.fixture(params=["fast", "slow"], autouse=True)
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers read the same: Python's, and the one for what it cannot read."""
    if request.param == "slow":
        monkeypatch.setattr(strict_json, "_IN_C", False)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "NaN", "Infinity", "-Infinity", "-", "+1", "01", "1.", ".5", "1e", "0x1", "1_000", "\uff11", "-a"),
        *("tru", "True", "None", "nullx", "'a'", '"', '"\n"', '"\t"', '"\\x"', '"\\u12"', '"\\u+123"', '"\\u 123"'),
        *("[1,]", "[,1]", '{"a":1,}', "{a:1}", '{"a"}', '{"a":}', "[", "]", "[}", '{"a":1', "1 2", "[]]", "\ufeff1"),
        *("\u00a01", "\x0b1", "\x1c1", "1\x85", "/**/1", '{"a":1 "b":2}', "[1 2]"),
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    for read in (parse, parse_keeping_numbers):
        with pytest.raises(JsonTextError):
            read(text)


def test_great_depth_and_long_numbers_are_read() -> None:
    deep = f"{'[' * DEEP}{']' * DEEP}"
    assert stringify(parse(deep)) == deep
    members = '{"a":' * DEEP + "1" + "}" * DEEP
    assert stringify(parse(members)) == members
    assert duplicate_member(members) is None
    assert duplicate_member(f'[{members},{{"b":1,"\\u0062":2}}]') == "b"
    digits = "9" * (sys.get_int_max_str_digits() + 1 if hasattr(sys, "get_int_max_str_digits") else 5000)
    assert parse(digits) == float("inf")
    assert parse_keeping_numbers(digits) == KeptNumber(digits)


def test_of_a_name_that_stands_twice_the_last_value_counts_in_the_first_place() -> None:
    assert stringify(parse('{"a":1,"b":2,"\\u0061":3}')) == '{"a":3,"b":2}'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *(("1.0", "1"), ("-0", "0"), ("1e5", "100000"), ("1e21", "1e+21"), ("1e-7", "1e-7"), ("0.000001", "0.000001")),
        *(("12345678901234567890", "12345678901234567000"), ("123e-20", "1.23e-18"), ("5e-324", "5e-324")),
        *(("9007199254740993", "9007199254740992"), ("100000000000000000000", "100000000000000000000")),
        *(("0.1e1", "1"), ("-1.50", "-1.5"), ("1e400", "null"), ("1e-400", "0"), ("4.35", "4.35")),
    ],
)
def test_a_number_is_written_as_ecmascript_writes_it_or_keeps_its_text(text: str, written: str) -> None:
    assert stringify(parse(text)) == written
    assert stringify(parse_keeping_numbers(text)) == text


def test_numbers_that_no_double_has_are_printed_as_doubles() -> None:
    assert number_text(2**53 + 1) == "9007199254740992"
    assert number_text(10**400) == "Infinity"
    assert number_text(-(10**400)) == "-Infinity"


def test_a_boolean_is_no_number() -> None:
    assert not same_scalar(True, 1)
    assert not same_scalar(1, True)
    assert not same_scalar(0, False)
    assert not same_scalar(None, 0)
    assert same_scalar(True, True)
    assert same_scalar(1, 1.0)
    assert same_scalar(1, KeptNumber("1.0"))
    assert not same_scalar(KeptNumber("1.0"), 1)
    assert not same_scalar(KeptNumber("1.0"), KeptNumber("1.00"))
    assert not same_scalar(float("nan"), float("nan"))


def test_surrogates_pair_however_they_are_written() -> None:
    assert parse('"\\ud83d\\ude00"') == "😀"
    assert parse('"\ud83d\\ude00"') == "😀"
    assert paired("\ud83d" + "\ude00") == "😀"
    assert stringify(["\ud83d" + "\ude00", "\ud83d", "\u2028\x7f\x00\n"]) == '["😀","\\ud83d","\u2028\x7f\\u0000\\n"]'
    assert duplicate_member('{"😀":1,"\\ud83d\\ude00":2}') == "😀"


def test_members_are_found_by_their_places() -> None:
    text = ' { "a" : [ "}" , {"b":"\\"]"} ] ,"\\u0062": -1.0e5\n} '
    members = top_level_members(text)
    assert [(one.key, text[one.value_start : one.value_end]) for one in members] == [
        ("a", '[ "}" , {"b":"\\"]"} ]'),
        ("b", "-1.0e5"),
    ]
    assert without_member(text, members, 0) == ' { "\\u0062": -1.0e5\n} '
    assert without_member(text, members, 1) == ' { "a" : [ "}" , {"b":"\\"]"} ] \n} '
    assert with_last_member('{"a":1 }', "b", "2") == '{"a":1 ,"b":2}'
    assert without_space(text) == '{"a":["}",{"b":"\\"]"}],"\\u0062":-1.0e5}'
    for broken in ("", "[]", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a":1}x', "{'a':1}", '{"a":"}'):
        with pytest.raises(JsonTextError):
            top_level_members(broken)


def test_names_that_are_indices_come_first() -> None:
    assert (
        stringify({"b": 1, "10": 2, "9": 3, "01": 4, "4294967295": 5}) == '{"9":3,"10":2,"b":1,"01":4,"4294967295":5}'
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [("[1,2,3]", 3), ('{"a":1,"b":[]}', 5), ('{"a":",:[{,:[{"}', 2), ('"\\",,,,"', 0), ("[[[]]]", 3)],
)
def test_names_and_values_are_counted_outside_of_strings(text: str, count: int) -> None:
    assert has_at_most(text, count)
    assert count == 0 or not has_at_most(text, count - 1)
    assert has_at_most(text, float("inf"))


def test_what_is_no_json_value_is_not_written() -> None:
    for value in (object(), {1: 2}, (1, 2), b"x"):
        with pytest.raises(JsonTextError):
            stringify(value)

"""The rules of docs/attestation.md §3, one by one: what a stream folds into, and which streams do not fold."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pytest

from countersign_verify.proto.stream.fold import FoldError, broken, fold_payloads
from countersign_verify.proto.stream.forms import choices_asked
from countersign_verify.proto.stream.record_events import record_events

DEEP = 20_000


def chunk(choice: str) -> str:
    return f'{{"object":"chat.completion.chunk","choices":[{choice}]}}'


def delta(text: str) -> str:
    return chunk(f'{{"index":0,"delta":{{{text}}}}}')


def message(*deltas: str) -> Any:
    """What the deltas of the only choice become."""
    return json.loads(fold_payloads(map(delta, deltas)))["choices"][0]["message"]


def fold_events(form: Literal["response", "message"], events: Iterable[tuple[str | None, str]]) -> str:
    record = record_events(form)
    for name, text in events:
        if record.add(name, text) == "error":
            raise broken("the stream ended with an error")
    return record.text()


def refused(payloads: Sequence[str], choices: int = 1) -> str:
    with pytest.raises(FoldError) as error:
        fold_payloads(payloads, choices)
    return str(error.value)


# §3.1


def test_chunks_fold() -> None:
    def seeded(choice: str) -> str:
        return chunk(choice).replace("{", '{"seed":12345678901234567890,', 1)

    folded = fold_payloads(
        [
            "null",
            seeded('{"index":1,"delta":{"content":"b"}}'),
            seeded('{"index":0,"delta":{"role":"assistant","content":"a\\ud83d"},"p":1.0}'),
            seeded('{"index":0,"delta":{"role":"","content":"\\ude00"},"finish_reason":"stop"}'),
            seeded(
                '{"index":1,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f"},"f":{"arguments":"1"}}]}}'
            ),
            seeded('{"index":1,"delta":{"tool_calls":[{"index":0,"id":"","f":{"arguments":"2"}}]}}'),
        ],
        2,
    )
    assert folded == (
        '{"seed":12345678901234567890,"object":"chat.completion","choices":['
        '{"index":0,"message":{"role":"assistant","content":"a😀"},"p":1.0,"finish_reason":"stop"},'
        '{"index":1,"message":{"role":"assistant","content":"b",'
        '"tool_calls":[{"id":"x","function":{"name":"f"},"f":{"arguments":"2"}}]}}]}'
    )


@pytest.mark.parametrize(
    "payload",
    [
        *("", "[]", "1", '{"a":1,"a":2}', '\ufeff{"a":1}', '{"error":{}}', '{"object":"error"}'),
        *('{"choices":{}}', '{"choices":[1]}', '{"choices":[{}]}', '{"model":1}', '{"usage":1}', '{"usage":[]}'),
        chunk('{"index":1.0}'),
        chunk('{"index":-0}'),
        chunk('{"index":"0"}'),
        chunk('{"index":10001}'),
        chunk('{"index":1}'),
        chunk('{"index":0},{"index":0}'),
        chunk('{"index":0,"message":{}}'),
        chunk('{"index":0,"delta":[]}'),
        chunk('{"index":0,"text":1}'),
        *(
            delta(one)
            for one in (
                *('"content":1', '"content":["a"]', '"content":[{"index":0}]', '"role":{}', '"refusal":[]'),
                *('"tool_calls":[{}]', '"tool_calls":[{"index":0},{"index":0}]', '"tool_calls":[{"index":0,"id":1}]'),
                *('"reasoning":"a","thinking":"b"', '"reasoning_details":[1]', '"reasoning_details":[{"text":1}]'),
                *('"audio":"a"', '"function_call":{"arguments":{}}', '"function_call":{"arguments":"{}{}"}'),
            )
        ),
        '{"choices":' + "[" * DEEP + "]" * DEEP + "}",
        '{"x":' + "[" * DEEP + "]" * DEEP + "}",
        '{"x":' * DEEP + "1" + "}" * DEEP,
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_chunk_that_breaks_a_rule_does_not_fold(payload: str) -> None:
    refused([payload])


@pytest.mark.parametrize(
    "deltas",
    [
        ('"role":"assistant"', '"role":"user"'),
        *(
            (
                f'"tool_calls":[{{"index":{first},"id":"a","function":{{"name":"f"}}}}]',
                f'"tool_calls":[{{"index":{second},"id":"{second_id}","custom":{{"name":"f"}}}}]',
            )
            for first, second, second_id in ((0, 0, "b"), (0, 1, "a"), (1, 0, "b"))
        ),
        ('"content":[{"type":"thinking"}]', '"reasoning":"b"'),
        (
            '"tool_calls":[{"index":0,"function":{"name":"f"}}]',
            '"tool_calls":[{"index":0,"function":{"name":"ff"}}]',
        ),
        ('"function_call":{"arguments":"{}"}', '"function_call":{"arguments":"{}"}'),
        ('"function_call":{"arguments":"1"}', '"function_call":{"arguments":"2"}'),
        ('"function_call":{"arguments":"\\"a"}', '"function_call":{"arguments":"\\\\\\"\\" x"}'),
        ('"reasoning":"a"', '"reasoning_content":"b"'),
        ('"reasoning":"a","thinking":"a"', '"reasoning":"b"'),
        ('"reasoning":"a"', '"reasoning":"b","thinking":"b"'),
    ],
)
def test_deltas_that_contradict_each_other_do_not_fold(deltas: Sequence[str]) -> None:
    for one in deltas:
        message(one)
    refused([delta(one) for one in deltas])


def test_a_choice_that_nobody_asked_for_and_one_that_is_missing_do_not_fold() -> None:
    first, second = chunk('{"index":0,"delta":{}}'), chunk('{"index":1,"delta":{}}')
    assert refused([first, second], 1) == "there are more choices than the request asks for"
    assert refused([second], 2) == "a choice is missing"
    assert fold_payloads([second, first], 2) == fold_payloads([first, second], 2)
    assert fold_payloads([second], None)


@pytest.mark.parametrize(
    ("request_text", "asked"),
    [
        ("{}", 1),
        ('{"n":3}', 3),
        ('{"n":2.0}', 2),
        ('{"n":0}', 1),
        ('{"n":"3"}', 1),
        ('{"n":1.5}', 1),
        ('{"n":2,"prompt":["a","b"]}', 4),
        ('{"prompt":[[1],[2]]}', 2),
        ('{"prompt":[1,2,3]}', 1),
        ('{"prompt":[]}', 1),
        ('{"prompt":"abc"}', 1),
    ],
)
def test_the_request_says_how_many_choices_there_are(request_text: str, asked: int) -> None:
    assert choices_asked("/v1/completions", request_text) == asked
    assert choices_asked("/v1/chat/completions", request_text) in (asked, json.loads(request_text).get("n"), 1)


def test_a_choice_has_its_text_in_one_place() -> None:
    choice = '{"choices":[{"index":0,"text":"a"%s}]}'
    assert fold_payloads([choice % ',"delta":null']) == choice % ""
    refused([choice % ',"delta":{}'])
    assert fold_payloads(['{"choices":[{"index":0,"text":"","delta":{}}]}'])


def test_every_chunk_of_a_chat_names_its_object() -> None:
    named, nameless = delta('"content":"a"'), delta('"content":"b"').replace('"chat.completion.chunk"', '""')
    for payloads in ([named, nameless], [nameless, named], [nameless.replace('"object":"",', ""), named]):
        assert refused(payloads) == "a chunk does not name its object"
    assert fold_payloads([nameless, nameless])
    assert fold_payloads([named, '{"choices":[],"usage":{}}', '{"choices":[{"index":0,"finish_reason":"stop"}]}'])


def test_the_last_event_names_what_was_shown_from_the_first_on() -> None:
    for last in ({"id": "r"}, {"model": "m"}, {"id": "r", "model": None}):
        whole = {"type": "response.completed", "response": {**last, "output": []}}
        events = [("response.created", {"type": "response.created", "response": BASE}), ("response.completed", whole)]
        with pytest.raises(FoldError):
            fold_events("response", [(name, json.dumps(event)) for name, event in events])


def test_members_are_joined_as_they_are_shown() -> None:
    folded = json.loads(
        fold_payloads(
            [
                '{"id":"","created":0,"usage":{"a":1},"model":"","x":"a","l":[1],"o":{"a":1}}',
                '{"id":"a","created":5,"usage":{"b":1},"model":"m","x":"","l":[2],"o":{"b":null}}',
                '{"id":"b","created":6,"usage":null,"model":"m","x":"b","l":[{"index":1.0,"a":1},{"index":0},{"index":1,"b":2}]}',
            ]
        )
    )
    assert folded == {
        "id": "a",
        "created": 5,
        "usage": {"b": 1},
        "model": "m",
        "x": "b",
        "o": {"a": 1, "b": None},
        "l": [1, 2, {"index": 0}, {"index": 1, "a": 1, "b": 2}],
    }


def test_content_is_text_or_parts() -> None:
    def content(*values: str) -> Any:
        return message(*(f'"content":{value}' for value in values))["content"]

    text, image = '[{"text":"b","type":"text"}]', '[{"type":"image","url":null}]'
    assert content('"a"', text, '"c"') == "abc"
    assert content("[]") == content('""') == content('[{"type":"text","text":""}]') == ""
    assert content("null") is None
    assert content('"a"', image, '""', '"c"', text) == [
        {"type": "text", "text": "a"},
        {"type": "image", "url": None},
        {"type": "text", "text": "cb"},
    ]
    assert content('[{"type":"text","text":"a","annotations":[]}]', '"b"')[1] == {"type": "text", "text": "b"}


def test_reasoning_details_grow_by_index_and_type() -> None:
    details = message(
        '"reasoning_details":[{"index":0,"type":"a","text":"x"},{"type":"a","text":"y"}]',
        '"reasoning_details":[{"index":0,"text":"z"},{"index":0,"type":"b","text":"q"},{"index":0,"text":"r"}]',
    )["reasoning_details"]
    assert [one["text"] for one in details] == ["xz", "y", "qr"]


def test_a_delta_becomes_the_message_and_null_hides_none() -> None:
    folded = fold_payloads(
        [chunk('{"index":0,"delta":{"content":"a"},"message":null}'), chunk('{"message":null,"index":0}')]
    )
    assert json.loads(folded)["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "a"}}]
    for choice in ('{"index":0}', '{"index":0,"delta":null}', '{"index":0,"message":null}'):
        assert json.loads(fold_payloads([chunk(choice)]))["choices"][0]["message"]["content"] is None
    assert fold_payloads(['{"choices":[{"index":0}]}']) == '{"choices":[{"index":0}]}'


def test_folding_takes_time_by_the_length_of_the_stream() -> None:
    def seconds(count: int) -> float:
        begun = time.process_time()
        fold_payloads(
            delta(
                f'"content":"a","tool_calls":[{{"index":{min(i, 99)},"function":{{"name":"f","arguments":" "}}}}],"x":[{{"index":{i % 7}}}]'
            )
            for i in range(count)
        )
        return time.process_time() - begun

    assert min(seconds(8_000) for _ in range(3)) < 24 * min(seconds(1_000) for _ in range(3))


# §3.2

BASE = {"id": "r", "model": "m"}
ITEM = {"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ab"}]}
CALL = {"id": "c", "type": "function_call", "name": "f", "call_id": "k", "arguments": "{}"}


def response(*events: dict[str, Any], output: Any) -> str:
    whole = [
        {"type": "response.created", "response": BASE},
        *events,
        {"type": "response.completed", "response": {**BASE, "output": output}},
    ]
    return fold_events("response", [(one["type"], json.dumps(one)) for one in whole])


def text_delta(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "response.output_text.delta",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
        **more,
    }


def item_event(kind: str, item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": 0, "item": item, **more}


def arguments(kind: str, text: str, **more: Any) -> dict[str, Any]:
    member = "delta" if kind == "delta" else "arguments"
    return {"type": f"response.function_call_arguments.{kind}", "item_id": "c", "output_index": 0, member: text, **more}


DONE = {"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": "ab"}
BEGUN_CALL = {**CALL, "arguments": ""}


def test_the_last_event_is_the_response_byte_for_byte() -> None:
    text = '{"id":"r", "output" : [ ],"x":1.0}'
    events = [
        ("response.created", '{"type":"response.created","response":{"id":"r"}}'),
        ("response.completed", f'{{"type":"response.completed","response":{text}}}'),
    ]
    assert fold_events("response", events) == text


@pytest.mark.parametrize(
    "events",
    [
        (text_delta("a"), text_delta("b"), DONE),
        (item_event("added", {**ITEM, "content": []}), text_delta("ab"), item_event("done", {**ITEM, "id": "other"})),
        (text_delta("a"), text_delta("b", item_id=None), {**DONE, "item_id": "other"}),
        (text_delta("ab", content_index=5), {**DONE, "content_index": 5}),
    ],
)
def test_a_response_folds_where_its_texts_were_streamed(events: Sequence[dict[str, Any]]) -> None:
    assert json.loads(response(*events, output=[ITEM]))["output"] == [ITEM]


@pytest.mark.parametrize(
    "events",
    [
        (item_event("added", BEGUN_CALL), arguments("delta", "{"), arguments("delta", "}"), arguments("done", "{}")),
        (item_event("added", BEGUN_CALL), arguments("done", "{}")),
        (item_event("added", {**CALL, "arguments": "{"}), arguments("delta", "}"), arguments("done", "{}")),
        (item_event("added", CALL), arguments("done", "{}", item_id=None)),
    ],
)
def test_a_call_may_come_in_pieces_or_in_one(events: Sequence[dict[str, Any]]) -> None:
    done = item_event("done", {**CALL, "id": "", "status": "completed", "x": None})
    assert json.loads(response(*events, done, output=[CALL]))["output"] == [CALL]


@pytest.mark.parametrize(
    ("events", "output"),
    [
        ((), [ITEM]),
        ((text_delta("a"),), [ITEM]),
        ((text_delta("ab"), text_delta("c")), [ITEM]),
        ((text_delta("ba"),), [ITEM]),
        ((text_delta("ab"),), []),
        ((text_delta("ab", output_index=1, item_id="other"),), [ITEM]),
        ((text_delta("ab"), {**DONE, "text": "abc"}), [ITEM]),
        ((text_delta("ab"), DONE, {**DONE, "text": "a"}), [ITEM]),
        ((text_delta("ab"), {"type": "response.x.delta", "delta": "shown"}), [ITEM]),
        ((text_delta("ab"), item_event("added", ITEM)), [ITEM]),
        ((text_delta("ab"), item_event("done", {**ITEM, "role": "user"})), [ITEM]),
        ((text_delta("ab"), item_event("done", ITEM), item_event("done", ITEM)), [ITEM]),
        (
            (text_delta("ab"), {"type": "response.content_part.added", "part": {"type": "output_text", "text": "a"}}),
            [ITEM],
        ),
        ((text_delta("ab"), {"type": "response.in_progress", "response": {"output": [ITEM]}}), [ITEM]),
        ((text_delta("ab"), {"type": "response.in_progress", "response": {"model": "other"}}), [ITEM]),
        ((text_delta("ab"), {"type": "response.in_progress", "response": {"id": "other"}}), [ITEM]),
        ((text_delta("ab"),), [ITEM, {"type": "image_generation_call"}]),
        ((text_delta("ab"),), [{**ITEM, "content": [*ITEM["content"], {"type": "refusal", "refusal": "no"}]}]),
        ((text_delta("ab"),), [{**ITEM, "call_id": "k"}]),
        ((text_delta("ab"),), [{**ITEM, "type": "reasoning"}]),
        ((text_delta("ab"),), [{**ITEM, "arguments": "a"}]),
        ((text_delta("a"), DONE, text_delta("b")), [ITEM]),
        ((text_delta("ab"),), [{**ITEM, "summary": [{"type": "output_text", "text": "c"}]}]),
        ((text_delta("ab"),), [{**ITEM, "content": [*ITEM["content"], {"type": "summary_text", "text": "c"}]}]),
        ((text_delta("ab"), {"type": "response.x", "error": {}}), [ITEM]),
        ((item_event("added", BEGUN_CALL), item_event("done", {**CALL, "arguments": 1})), [{**CALL, "arguments": 1}]),
        ((arguments("delta", "{}"), item_event("done", CALL)), [CALL]),
        ((arguments("delta", "{}"), item_event("added", BEGUN_CALL), item_event("done", CALL)), [CALL]),
        ((item_event("added", BEGUN_CALL), arguments("delta", "{}")), [CALL]),
        ((item_event("added", {**BEGUN_CALL, "name": "g"}), item_event("done", CALL)), [CALL]),
        ((item_event("added", {**BEGUN_CALL, "name": ""}), item_event("done", CALL)), [CALL]),
        ((item_event("added", {**BEGUN_CALL, "input": "a"}), item_event("done", CALL)), [CALL]),
        *(
            ((item_event("added", begin), *events, item_event("done", CALL)), [CALL])
            for begin, events in (
                ({**CALL, "arguments": "}"}, (arguments("delta", "{"),)),
                (BEGUN_CALL, (arguments("done", "[]"),)),
                (BEGUN_CALL, ()),
                (BEGUN_CALL, (arguments("done", "{}"), arguments("delta", "{}"))),
                (BEGUN_CALL, (arguments("delta", "{}", output_index=1),)),
                (BEGUN_CALL, (arguments("delta", "{}", output_index=None),)),
                (BEGUN_CALL, (arguments("delta", "{}", item_id="other"),)),
                ({**BEGUN_CALL, "id": "other"}, (arguments("delta", "{}"),)),
                ({**CALL, "arguments": "{"}, (arguments("done", "{}"), arguments("delta", "}"))),
            )
        ),
    ],
)
def test_a_response_that_says_other_than_was_streamed_does_not_fold(
    events: Sequence[dict[str, Any]], output: list[Any]
) -> None:
    with pytest.raises(FoldError):
        response(*events, output=output)


def test_calls_come_in_the_order_of_the_response_and_under_their_place() -> None:
    other = {**CALL, "id": "d", "call_id": "l", "arguments": "[]"}
    one, two = item_event("added", CALL), item_event("added", other, output_index=1)
    end, end_of_two = item_event("done", CALL), item_event("done", other, output_index=1)
    assert response(one, end, two, end_of_two, output=[CALL, other])
    for events in (
        (two, end_of_two, one, end),
        (one, two, end, end_of_two),
        (one, end, {**two, "output_index": 0}, end_of_two),
        (item_event("added", BEGUN_CALL), end, two, arguments("delta", "{}", output_index=1), end_of_two),
    ):
        with pytest.raises(FoldError):
            response(*events, output=[CALL, other])


def test_the_end_of_an_empty_call_stands_at_its_place() -> None:
    empty = {**CALL, "arguments": ""}

    def events(output_index: float) -> list[dict[str, Any]]:
        return [item_event("added", empty), arguments("done", "", output_index=output_index), item_event("done", empty)]

    assert response(*events(0), output=[empty])
    for wrong in (1, 0.5, 10_001):
        with pytest.raises(FoldError):
            response(*events(wrong), output=[empty])


def test_a_text_ends_once() -> None:
    assert response(text_delta("ab"), DONE, output=[ITEM])
    with pytest.raises(FoldError, match="ends twice"):
        response(text_delta("ab"), DONE, DONE, output=[ITEM])


def test_calls_have_names_of_their_own() -> None:
    def refuses(first: dict[str, Any], second: dict[str, Any], *more: dict[str, Any]) -> None:
        output = [first, second]
        events = [item_event(kind, item, output_index=i) for kind in ("added", "done") for i, item in enumerate(output)]
        with pytest.raises(FoldError):
            response(*events, *more, output=output)

    refuses(CALL, {**CALL, "id": "d"})
    refuses(CALL, {**CALL, "call_id": "l"})
    refuses({**CALL, "id": ""}, {**CALL, "id": "d", "call_id": "l"}, arguments("done", "{}", item_id="d"))


def test_only_events_of_parts_have_a_part() -> None:
    part = {"type": "output_text", "text": "hidden"}
    assert response(text_delta("ab"), {"type": "response.in_progress", "part": part}, output=[ITEM])


def test_an_event_of_a_type_that_has_no_rule_does_not_fold() -> None:
    for kind in ("response.x.added", "response.x.done", "response.x.delta", "x"):
        with pytest.raises(FoldError, match="of a type that has no rule"):
            response(text_delta("ab"), {"type": kind}, output=[ITEM])


def test_a_citation_that_is_shown_is_one_of_the_response() -> None:
    citation = {"type": "url_citation", "url": "https://example.com/"}
    cited = {**ITEM, "content": [{"type": "output_text", "text": "ab", "annotations": [citation]}]}
    kind = "response.output_text.annotation.added"

    def shown(annotation: object) -> dict[str, object]:
        return {"type": kind, "output_index": 0, "item_id": ITEM["id"], "annotation": annotation}

    assert response(text_delta("ab"), shown(citation), output=[cited])
    with pytest.raises(FoldError):
        response(text_delta("ab"), shown({**citation, "url": "https://example.org/"}), output=[cited])


@pytest.mark.parametrize(
    "more",
    [
        '{"__proto__":{"a":1}}',
        '{"\\u005f_proto__":{"a":1}}',
        '{"message":{"content":"hidden"}}',
        '{"service_tier":{"a":1}}',
        delta('"content":"hidden"'),
        chunk('{"index":0,"text":"hidden"}'),
    ],
)
def test_a_chunk_that_readers_would_take_differently_does_not_fold(more: str) -> None:
    end = '{"object":"chat.completion.chunk","service_tier":"x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}'
    assert fold_payloads([end, delta('"role":"assistant","content":""')])
    refused([end, more])


def test_citations_and_probabilities_are_added() -> None:
    def one(value: int) -> str:
        return chunk(f'{{"index":0,"delta":{{"annotations":[{value}]}},"logprobs":{{"content":[{value}]}}}}')

    folded = json.loads(fold_payloads([one(1), one(2)]))["choices"][0]
    assert folded["message"]["annotations"] == folded["logprobs"]["content"] == [1, 2]


def test_an_error_says_whether_a_rule_or_the_form_is_broken() -> None:
    def reason(payload: str) -> str:
        with pytest.raises(FoldError) as error:
            fold_payloads([payload])
        return error.value.reason

    for payload in ("", "1", '{"a":1,"a":2}', '{"error":{}}', '{"x":' + "[" * DEEP + "]" * DEEP + "}"):
        assert reason(payload) == "broken"
    for payload in ('{"model":1}', '{"created":true}', '{"id":[]}', chunk('{"index":1}')):
        assert reason(payload) == "rule"


def test_texts_of_two_items_are_shown_in_the_order_of_the_response() -> None:
    other = {**ITEM, "id": "j"}
    one, two = text_delta("ab"), text_delta("ab", item_id="j", output_index=1)
    assert response(one, two, output=[ITEM, other])
    last = {**ITEM, "id": "j", "content": [{"type": "output_text", "text": "cd"}]}
    with pytest.raises(FoldError):
        response({**two, "delta": "cd"}, one, output=[ITEM, last])


def test_items_of_any_depth_are_compared() -> None:
    deep = "[" * DEEP + "1" + "]" * DEEP
    item = f'{{"id":"i","type":"x","deep":{deep}}}'
    events = [
        ("response.created", '{"type":"response.created","response":{}}'),
        *(
            (f"response.output_item.{kind}", f'{{"type":"response.output_item.{kind}","output_index":0,"item":{item}}}')
            for kind in ("added", "done")
        ),
        ("response.completed", f'{{"type":"response.completed","response":{{"output":[{item}]}}}}'),
    ]
    assert item in fold_events("response", events)


# §3.3


def messages(*events: dict[str, Any], start: dict[str, Any] | None = None) -> Any:
    whole = [
        {
            "type": "message_start",
            "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}} if start is None else start,
        },
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    return json.loads(fold_events("message", [(one["type"], json.dumps(one)) for one in whole]))


def begun(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(kind: str, index: int = 0, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


TEXT = {"type": "text", "text": ""}


def test_blocks_become_the_content() -> None:
    folded = messages(
        {"type": "ping"},
        begun(TEXT),
        block_delta("text_delta", text="a"),
        block_delta("text_delta", text="b"),
        block_delta("citations_delta", citation={"c": 1}),
        {"type": "content_block_stop", "index": 0},
        begun({"type": "tool_use", "id": "t", "input": {}}, 1),
        block_delta("input_json_delta", 1, partial_json='{"a":'),
        block_delta("input_json_delta", 1, partial_json="1.0}"),
        begun({"type": "thinking", "thinking": "", "signature": ""}, 2),
        begun({"type": "compaction", "content": None}, 3),
        block_delta("signature_delta", 2, signature="s"),
        block_delta("compaction_delta", 3, content=None),
        {"type": "message_delta", "delta": {"container": {"id": "c"}, "role": "user"}, "usage": {"input_tokens": None}},
    )
    assert folded["content"] == [
        {"type": "text", "text": "ab", "citations": [{"c": 1}]},
        {"type": "tool_use", "id": "t", "input": {"a": 1.0}},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "compaction", "content": ""},
    ]
    assert folded["usage"] == {"input_tokens": 1, "output_tokens": 2}
    assert (folded["stop_reason"], folded["container"], "role" in folded) == ("end_turn", {"id": "c"}, False)


@pytest.mark.parametrize(
    "events",
    [
        (begun(TEXT, 1),),
        (begun({"type": "text", "text": "a"}),),
        (begun({"type": "thinking", "thinking": "a"}),),
        (begun(TEXT), begun(TEXT, 1), block_delta("text_delta", 0, text="a")),
        (begun(TEXT), {"type": "content_block_stop", "index": 0}, block_delta("text_delta", text="a")),
        (begun(TEXT), block_delta("other_delta", text="a")),
        (begun({"type": "thinking"}),),
        (begun({"type": "tool_use", "text": "a"}),),
        (begun({"type": "tool_use", "id": "t", "input": {}}), block_delta("text_delta", text="a")),
        (begun({"type": "tool_use", "input": {"a": 1}}), block_delta("input_json_delta", partial_json="{}")),
        (begun(TEXT), block_delta("signature_delta", signature="s")),
        (begun({"type": ["text"]}), block_delta("text_delta", text="a")),
        (begun(TEXT), block_delta("text_delta", text=1)),
        (begun({"type": "x", "text": [1]}), block_delta("text_delta", text="a")),
        (begun(TEXT), block_delta("input_json_delta", partial_json="{")),
        (begun(TEXT), block_delta("input_json_delta", partial_json='{"a":1,"a":2}')),
        ({"type": "message_start", "message": {}},),
        ({"type": "message_delta", "delta": {"stop_reason": "a"}}, begun(TEXT)),
        ({"type": "message_delta", "delta": {"stop_reason": "a"}},),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": "a"}},),
        ({"type": "message_delta", "delta": {"stop_reason": ["end_turn"]}},),
        ({"type": "message_stop"},),
        ({"type": "error"},),
        ({"type": "ping", "attestation": None},),
    ],
)
def test_a_message_that_breaks_a_rule_does_not_fold(events: Sequence[dict[str, Any]]) -> None:
    with pytest.raises(FoldError):
        messages(*events)


def test_a_message_stops_more_than_once_with_the_same_reason() -> None:
    again = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    later = {**again, "context_management": {"a": 1}}
    folded = messages(begun(TEXT), again, {"type": "content_block_x", "index": 7}, later)
    assert folded["usage"]["output_tokens"] == 2
    assert (folded["stop_reason"], folded["context_management"]) == ("end_turn", {"a": 1})


def test_a_message_begins_empty() -> None:
    assert list(messages(start={"content": None, "id": "m"})) == [
        "content",
        "id",
        "stop_reason",
        "stop_sequence",
        "usage",
    ]
    for start in ({"content": [1]}, {"content": "a"}, {"attestation": None}):
        with pytest.raises(FoldError):
            messages(start=start)

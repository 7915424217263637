"""openai (PyPI): extra_body carries tee; the attestation is an attribute like any other."""

from drive import WEATHER, by_id, drive, tee_body, tee_headers
from openai import OpenAI


def connect(question, wire):
    return OpenAI(
        base_url=question["baseURL"],
        api_key=question["apiKey"],
        max_retries=0,
        http_client=wire.http,
        default_headers=tee_headers(question),
    )


def ask(question, wire, heard):
    client = connect(question, wire)
    call = text if question["endpoint"] == "text" else whole if question["delivery"] == "whole" else stream
    call(client, question, heard)
    if question["tee"] != "off" and not question["leave"]:
        heard.found["GET by x-attestation-id"] = by_id(client, question, wire.attestation_id)


def body(question):
    tools = {"tools": [WEATHER]} if question["tools"] else {}
    messages = [{"role": "user", "content": question["content"]}]
    return {"model": question["model"], "messages": messages, "extra_body": tee_body(question), **tools}


def whole(client, question, heard):
    answer = client.chat.completions.create(**body(question))
    message = answer.choices[0].message
    heard.text = message.tool_calls[0].function.arguments if message.tool_calls else message.content
    heard.finish = answer.choices[0].finish_reason
    heard.found["completion.attestation"] = getattr(answer, "attestation", None)


def stream(client, question, heard):
    found = []
    with client.chat.completions.create(**body(question), stream=True) as chunks:
        for chunk in chunks:
            for choice in chunk.choices:
                calls = choice.delta.tool_calls
                heard.text += (calls[0].function.arguments if calls else choice.delta.content) or ""
                heard.finish = choice.finish_reason or heard.finish
            if getattr(chunk, "attestation", None) is not None:
                found.append(chunk.attestation)
            if question["leave"] and heard.text:
                return
    assert len(found) <= 1, "an attestation goes out once in a stream"
    heard.found["finish chunk .attestation"] = found[0] if found else None


def text(client, question, heard):
    given = {"model": question["model"], "prompt": question["content"], "extra_body": tee_body(question)}
    streamed = question["delivery"] == "stream"
    answer = client.completions.create(**given, stream=streamed)
    heard.found["attestation"] = None
    for part in answer if streamed else [answer]:
        for choice in part.choices:
            heard.text += choice.text
            heard.finish = choice.finish_reason or heard.finish
        if getattr(part, "attestation", None) is not None:
            heard.found["attestation"] = part.attestation


def models(question):
    return [model.id for model in OpenAI(base_url=question["baseURL"], api_key=question["apiKey"]).models.list()]


drive(ask, models)

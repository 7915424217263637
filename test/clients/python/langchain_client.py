"""langchain-openai (PyPI): drops members it does not know; the class of examples/langchain_attestation.py keeps this one."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "examples"))

from drive import WEATHER, by_id, drive, tee_body, tee_headers  # noqa: E402
from langchain_attestation import AttestedChatOpenAI  # noqa: E402


def ask(question, wire, heard):
    model = AttestedChatOpenAI(
        model=question["model"],
        base_url=question["baseURL"],
        api_key=question["apiKey"],
        max_retries=0,
        http_client=wire.http,
        default_headers=tee_headers(question),
        extra_body=tee_body(question) or None,
        include_response_headers=True,
    )
    bound = model.bind_tools([WEATHER]) if question["tools"] else model
    message = (whole if question["delivery"] == "whole" else stream)(bound, question, heard)
    if question["tee"] == "off" or question["leave"]:
        return
    metadata = message.response_metadata
    header = metadata["headers"]["x-attestation-id"]
    heard.found["GET by response_metadata.headers"] = by_id(model.root_client, question, header)
    # In a stream LangChain drops the completion's id too.
    if question["delivery"] == "whole":
        heard.found["GET by response_metadata.id"] = by_id(model.root_client, question, metadata["id"])


def whole(model, question, heard):
    message = model.invoke(question["content"])
    calls = message.tool_calls
    heard.text = json.dumps(calls[0]["args"], separators=(",", ":")) if calls else message.text
    heard.finish = message.response_metadata["finish_reason"]
    heard.found["response_metadata.attestation"] = message.response_metadata.get("attestation")
    return message


def stream(model, question, heard):
    whole = None
    for chunk in model.stream(question["content"]):
        heard.text += "".join(call["args"] or "" for call in chunk.tool_call_chunks) or chunk.text
        heard.finish = chunk.response_metadata.get("finish_reason") or heard.finish
        whole = chunk if whole is None else whole + chunk
        if question["leave"] and heard.text:
            return whole
    heard.found["response_metadata.attestation"] = whole.response_metadata.get("attestation")
    return whole


drive(ask)

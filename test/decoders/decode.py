"""Reads streams as a Python client does: says "ready", then takes one list of answers a line and prints one list of readings.

The argument names the client. An answer is {"status", "type", "pieces", "broken"}, its pieces in base64; a reading is
{"read", "threw"}: what a program was given, and what it was thrown.
"""

import base64
import json
import math
import sys

import httpx
import httpx2
import openai
from httpx_sse import connect_sse


class Pieces(httpx.SyncByteStream, httpx2.SyncByteStream):
    """A body that arrives as the answer says, and breaks off where it says so."""

    def __init__(self, answer, error):
        self._answer = answer
        self._error = error

    def __iter__(self):
        for piece in self._answer["pieces"]:
            yield base64.b64decode(piece)
        if self._answer["broken"]:
            raise self._error("the connection broke")


def transport(module, answer):
    headers = {"content-type": answer["type"]} if answer["type"] else {}
    body = Pieces(answer, module.ReadError)
    return module.MockTransport(lambda request: module.Response(answer["status"], headers=headers, stream=body))


def finite(value):
    """JSON has no infinities: JavaScript writes null for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return value


def openai_values(answer, take):
    with httpx2.Client(transport=transport(httpx2, answer)) as http:
        client = openai.OpenAI(base_url="http://127.0.0.1/v1", api_key="sk-decoders", max_retries=0, http_client=http)
        # The values as they are, not as the models of its types.
        stream = client.post(
            "/chat/completions", body={}, cast_to=object, stream=True, stream_cls=openai.Stream[object]
        )
        for value in stream:
            take(finite(value))


def sse_texts(answer, take):
    """httpx-sse gives texts; what a program does with them is written as OpenAI's clients do it."""
    with httpx.Client(transport=transport(httpx, answer)) as http:
        with connect_sse(http, "POST", "http://127.0.0.1/v1/chat/completions") as source:
            source.response.raise_for_status()
            for event in source.iter_sse():
                if event.data == "[DONE]":
                    return
                if event.data == "":
                    continue  # an event without data
                take(event.data)
                value = json.loads(event.data)
                if isinstance(value, dict) and value.get("error"):
                    raise RuntimeError("the server sent an error")


def reading(decode, answer):
    read = []
    try:
        decode(answer, read.append)
        return {"read": read, "threw": None}
    except Exception as error:  # whatever a client throws is what the test looks at
        return {"read": read, "threw": type(error).__name__}


decode = {"openai": openai_values, "httpx-sse": sse_texts}[sys.argv[1]]
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    print(json.dumps([reading(decode, answer) for answer in json.loads(line)]), flush=True)

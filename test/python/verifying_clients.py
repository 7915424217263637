"""The Python half of clients.python.ts: reads one question a line, lets a client ask it through a verifying HTTP client and a network that
may tamper, and prints one outcome a line, as JSON."""

import asyncio
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import httpx
import httpx2
import langchain_openai
import openai

from countersign_verify import Policy, UnprovenAnswerError, verifying_async_client, verifying_client

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def without_attestation(text):
    start = text.index(',"attestation":')
    _, end = json.JSONDecoder().raw_decode(text, start + len(',"attestation":'))
    return text[:start] + text[end:]


class Network:
    """A proxy before the gateway: it passes answers on, or changes what its mode says. It counts what it was asked."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.mode = "as it is"
        self.calls = 0
        self.bundles = 0
        self.kept = None
        self.http = httpx.Client(timeout=30)
        network = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                network.answer(self)

            def do_GET(self):
                network.serve_bundle(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler):
        self.calls += 1
        body = handler.rfile.read(int(handler.headers["content-length"]))
        names = ("authorization", "content-type", "x-api-key", "anthropic-version")
        headers = {name: handler.headers[name] for name in names if handler.headers[name]}
        response = self.http.post(self.gateway + handler.path.removeprefix("/v1"), content=body, headers=headers)
        text, older = response.content, self.kept
        self.kept = text
        changed = {
            "as it is": lambda: text,
            "changed": lambda: re.sub(rb"trav|Paris|Pa", b"XXXX", text, count=1),
            "without its attestation": lambda: without_attestation(text.decode()).encode(),
            "without its end": lambda: text[: text.index(b"trav")],
            "of before": lambda: older,
            "cut": lambda: text,
        }.get(self.mode, lambda: text)()
        handler.send_response(response.status_code)
        handler.send_header("content-type", response.headers["content-type"])
        handler.send_header("content-length", str(len(changed)))
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(changed[: len(changed) // 2] if self.mode == "cut" else changed)
        handler.close_connection = True


    def serve_bundle(self, handler):
        """A GET, which is for a bundle: no other one is made here."""
        self.bundles += 1
        response = self.http.get(self.gateway + handler.path.removeprefix("/v1"))
        status = 404 if self.mode == "without its bundle" else response.status_code
        content = response.content.replace(b"token", b"taken") if self.mode == "with another bundle" else response.content
        handler.send_response(status)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


class Outcome:
    def __init__(self, network, root, min_level, compact):
        self.network = network
        self.text, self.arguments, self.finish = "", "", None
        self.proofs, self.refusals, self.failure = [], [], None
        self.options = {
            "simulated_root": root,
            "compact": compact,
            "policy": Policy(min_level=min_level),
            "on_verified": lambda proof: self.proofs.append(proof.exchange.endpoint),
            "on_unproven": lambda error: self.refusals.append(error.code),
        }

    def failed(self, error):
        body = getattr(error, "body", None)
        # Of Anthropic's client the body is the whole one.
        inner = body.get("error", body) if isinstance(body, dict) else {}
        code = error.code if isinstance(error, UnprovenAnswerError) else inner.get("code")
        self.failure = {
            "type": type(error).__name__,
            "bases": [base.__name__ for base in type(error).__mro__],
            "code": code,
            "message": str(error),
        }

    def json(self):
        return {
            "text": self.text,
            "arguments": self.arguments,
            "finish": self.finish,
            "proofs": self.proofs,
            "refusals": self.refusals,
            "failure": self.failure,
            "calls": self.network.calls,
            "bundles": self.network.bundles,
        }


def body(question):
    tools = {"tools": [{"type": "function", "function": WEATHER}]} if question["model"] == "tools" else {}
    return {"model": question["model"], "messages": [{"role": "user", "content": "Hi"}], **tools}


def take_chunk(outcome, chunk):
    for choice in chunk.choices:
        outcome.text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            outcome.arguments += call.function.arguments or ""
        outcome.finish = choice.finish_reason or outcome.finish


def take_whole(outcome, answer):
    choice = answer.choices[0]
    outcome.text = choice.message.content or ""
    outcome.arguments = "".join(call.function.arguments for call in choice.message.tool_calls or [])
    outcome.finish = choice.finish_reason


def openai_sync(question, outcome, base):
    client = openai.OpenAI(base_url=base, api_key=question["key"], http_client=verifying_client(**outcome.options))
    with client:
        if not question["stream"]:
            return take_whole(outcome, client.chat.completions.create(**body(question)))
        for chunk in client.chat.completions.create(**body(question), stream=True):
            take_chunk(outcome, chunk)


async def openai_async(question, outcome, base):
    client = openai.AsyncOpenAI(
        base_url=base, api_key=question["key"], http_client=verifying_async_client(**outcome.options)
    )
    async with client:
        if not question["stream"]:
            return take_whole(outcome, await client.chat.completions.create(**body(question)))
        async for chunk in await client.chat.completions.create(**body(question), stream=True):
            take_chunk(outcome, chunk)


def chat_model(question, outcome, base):
    model = langchain_openai.ChatOpenAI(
        model=question["model"],
        base_url=base,
        api_key=question["key"],
        http_client=verifying_client(**outcome.options),
        http_async_client=verifying_async_client(**outcome.options),
    )
    return model.bind_tools([{"type": "function", "function": WEATHER}]) if question["model"] == "tools" else model


def take_message(outcome, message):
    outcome.text += message.text
    outcome.finish = message.response_metadata.get("finish_reason") or outcome.finish


def take_message_chunk(outcome, chunk):
    outcome.arguments += "".join(call["args"] or "" for call in chunk.tool_call_chunks)
    take_message(outcome, chunk)


def take_message_whole(outcome, message):
    outcome.arguments = "".join(json.dumps(call["args"], separators=(",", ":")) for call in message.tool_calls)
    take_message(outcome, message)


def langchain_sync(question, outcome, base):
    model = chat_model(question, outcome, base)
    if not question["stream"]:
        return take_message_whole(outcome, model.invoke("Hi"))
    for chunk in model.stream("Hi"):
        take_message_chunk(outcome, chunk)


async def langchain_async(question, outcome, base):
    model = chat_model(question, outcome, base)
    if not question["stream"]:
        return take_message_whole(outcome, await model.ainvoke("Hi"))
    async for chunk in model.astream("Hi"):
        take_message_chunk(outcome, chunk)


def anthropic_body(question):
    return {"model": question["model"], "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}


def take_anthropic(outcome, message):
    outcome.text = "".join(block.text for block in message.content if block.type == "text")
    outcome.arguments = "".join(
        json.dumps(block.input, separators=(",", ":")) for block in message.content if block.type == "tool_use"
    )
    outcome.finish = message.stop_reason


def take_anthropic_event(outcome, event):
    if event.type == "content_block_delta":
        outcome.text += getattr(event.delta, "text", "")
        outcome.arguments += getattr(event.delta, "partial_json", "")
    if event.type == "message_delta":
        outcome.finish = event.delta.stop_reason


def anthropic_sync(question, outcome, base):
    http = verifying_client(library=httpx2, **outcome.options)
    with anthropic.Anthropic(base_url=base.removesuffix("/v1"), api_key=question["key"], http_client=http) as client:
        if not question["stream"]:
            return take_anthropic(outcome, client.messages.create(**anthropic_body(question)))
        for event in client.messages.create(**anthropic_body(question), stream=True):
            take_anthropic_event(outcome, event)


async def anthropic_async(question, outcome, base):
    http = verifying_async_client(library=httpx2, **outcome.options)
    async with anthropic.AsyncAnthropic(
        base_url=base.removesuffix("/v1"), api_key=question["key"], http_client=http
    ) as client:
        if not question["stream"]:
            return take_anthropic(outcome, await client.messages.create(**anthropic_body(question)))
        async for event in await client.messages.create(**anthropic_body(question), stream=True):
            take_anthropic_event(outcome, event)


CLIENTS = {
    "openai": openai_sync,
    "openai, async": openai_async,
    "langchain-openai": langchain_sync,
    "langchain-openai, async": langchain_async,
    "anthropic": anthropic_sync,
    "anthropic, async": anthropic_async,
}


def main():
    print(json.dumps("ready"), flush=True)
    networks = {}
    for line in sys.stdin:
        question = json.loads(line)
        url = question["url"]
        network = networks[url] = networks.get(url) or Network(url)
        network.mode, network.calls, network.bundles = question["network"], 0, 0
        outcome = Outcome(network, question["root"], question["minLevel"], question.get("compact", False))
        try:
            asked = CLIENTS[question["client"]](question, outcome, network.url)
            if asked is not None:
                asyncio.run(asked)
        except Exception as error:  # whatever a client raises is what the test looks at
            outcome.failed(error)
        print(json.dumps(outcome.json()), flush=True)


main()

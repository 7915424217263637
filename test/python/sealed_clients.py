"""The Python half of sealed-clients.python.ts: reads one question a line, lets openai ask it through a sealed client and an edge that reads
all it can and may tamper, and prints one outcome a line, as JSON."""

import asyncio
import http.client
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import openai

from countersign_verify import Policy, UnprovenAnswerError
from countersign_verify.sealed import SealedError, sealed_async_client, sealed_client


class Edge:
    """Stands before the gateway. It passes on what comes, or does what its mode says; it keeps every byte that it saw."""

    def __init__(self, gateway):
        self.gateway = urlsplit(gateway)
        self.mode = "as it is"
        self.saw = []
        self.sealed = []
        edge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                edge.pass_on(self, b"")

            def do_POST(self):
                edge.pass_on(self, body_of(self))

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def pass_on(self, handler, body):
        self.saw.append(f"{handler.requestline}\n{handler.headers}".encode() + body)
        is_sealed = handler.command == "POST"
        if is_sealed:
            self.sealed.append(body)
            if self.mode == "with another key's identifier" and len(self.sealed) == 1:
                body = bytes([body[0] ^ 0x40]) + body[1:]
            if self.mode == "sent twice":
                self.fetch(handler, body)
        status, headers, parts = self.fetch(handler, body)
        if is_sealed and self.mode == "in the clear":
            headers, parts = {"content-type": "application/json"}, [b'{"choices":[]}']
        if is_sealed and self.mode == "cut":
            parts = [b"".join(parts)[:-9]]
        if is_sealed and self.mode == "changed":
            whole = bytearray(b"".join(parts))
            whole[-1] ^= 1
            parts = [bytes(whole)]
        if is_sealed and self.mode == "of before":
            parts, self.kept = [self.kept], b"".join(parts)
        elif is_sealed:
            self.kept = b"".join(parts)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for part in parts:
            self.saw.append(part)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    def fetch(self, handler, body):
        connection = http.client.HTTPConnection(self.gateway.hostname, self.gateway.port, timeout=60)
        withheld = ("host", "connection", "transfer-encoding", "content-length")
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in withheld}
        connection.request(handler.command, handler.path, body, headers)
        response = connection.getresponse()
        parts = []
        while part := response.read1(65536):
            parts.append(part)
        kept = {name: value for name, value in response.getheaders() if name.lower() in ("content-type", "retry-after")}
        connection.close()
        return response.status, kept, parts


def body_of(handler):
    length = handler.headers["content-length"]
    if length is not None:
        return handler.rfile.read(int(length))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


class Outcome:
    def __init__(self, edge, question):
        self.edge = edge
        self.text, self.finish = "", None
        self.proofs, self.levels, self.failure = [], [], None
        level = question["level"]
        self.options = {
            "simulated_root": question["root"],
            "compact": question.get("compact", False),
            "edge_headers": {"authorization": f"Bearer {question['edge_key']}"},
            "on_verified": lambda proof: self.proofs.append(proof.exchange.endpoint),
            "on_session": lambda report: self.levels.append(report.level),
            **({} if level is None else {"policy": Policy(min_level=level)}),
        }

    def failed(self, error):
        body = getattr(error, "body", None)
        own = isinstance(error, (UnprovenAnswerError, SealedError))
        code = error.code if own else body.get("code") if isinstance(body, dict) else None
        self.failure = {"type": type(error).__name__, "code": code}

    def json(self, secrets):
        saw = b"".join(self.edge.saw)
        return {
            "text": self.text,
            "finish": self.finish,
            "proofs": self.proofs,
            "levels": self.levels,
            "failure": self.failure,
            "sealed": len(self.edge.sealed),
            "calls": sum(b" HTTP/1.1" in one[:400] for one in self.edge.saw),
            "seen": [secret for secret in secrets if secret.encode() in saw],
        }


def body(question):
    return {"model": question["model"], "messages": [{"role": "user", "content": question["prompt"]}]}


def take(outcome, chunk):
    for choice in chunk.choices:
        outcome.text += choice.delta.content or ""
        outcome.finish = choice.finish_reason or outcome.finish


def take_whole(outcome, answer):
    outcome.text = answer.choices[0].message.content or ""
    outcome.finish = answer.choices[0].finish_reason


def options(question, http):
    return {"base_url": f"{question['edge']}/v1", "api_key": question["key"], "http_client": http, "max_retries": 0}


def ask(question, outcome):
    with openai.OpenAI(**options(question, sealed_client(question["edge"], **outcome.options))) as client:
        for _ in range(question["times"]):
            if not question["stream"]:
                take_whole(outcome, client.chat.completions.create(**body(question)))
                continue
            for chunk in client.chat.completions.create(**body(question), stream=True):
                take(outcome, chunk)


async def ask_async(question, outcome):
    async with openai.AsyncOpenAI(
        **options(question, sealed_async_client(question["edge"], **outcome.options))
    ) as client:
        for _ in range(question["times"]):
            if not question["stream"]:
                take_whole(outcome, await client.chat.completions.create(**body(question)))
                continue
            async for chunk in await client.chat.completions.create(**body(question), stream=True):
                take(outcome, chunk)


def main():
    print(json.dumps("ready"), flush=True)
    edges = {}
    for line in sys.stdin:
        question = json.loads(line)
        edge = edges[question["url"]] = edges.get(question["url"]) or Edge(question["url"])
        edge.mode, edge.saw, edge.sealed = question["mode"], [], []
        question["edge"] = edge.url
        outcome = Outcome(edge, question)
        try:
            if question["kind"] == "sync":
                ask(question, outcome)
            else:
                asyncio.run(ask_async(question, outcome))
        except Exception as error:  # whatever a client raises is what the test looks at
            outcome.failed(error)
        print(json.dumps(outcome.json(question["secrets"])), flush=True)


main()

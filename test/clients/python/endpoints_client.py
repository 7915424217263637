"""The Python half of endpoints.python.ts: says "ready", then reads one question a line, lets a client ask it, prints what it found where, as JSON."""

import asyncio
import json
import os
import sys
import traceback

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import agents  # noqa: E402
import anthropic  # noqa: E402
import openai  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402
from llama_index.embeddings.openai import OpenAIEmbedding  # noqa: E402

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": CITY, "strict": True}


class Wire:
    """Keeps what a client sends, and the ids under which the attestations are kept, in order."""

    def __init__(self):
        self.sent, self.ids = [], []

    def request(self, request):
        if request.method == "POST":
            self.sent.append(request.read().decode())

    def response(self, response):
        if response.request.method == "POST":
            self.ids.append(response.headers.get("x-attestation-id"))

    def hooks(self):
        return {"event_hooks": {"request": [self.request], "response": [self.response]}}

    def http(self):
        return openai.DefaultHttpxClient(**self.hooks())

    def async_hooks(self):
        async def request(one):
            self.request(one)

        async def response(one):
            self.response(one)

        return {"event_hooks": {"request": [request], "response": [response]}}


class Heard:
    def __init__(self):
        self.text = ""
        # By the place where a program finds it: one for each request.
        self.found = {}

    def at(self, place, attestation):
        self.found.setdefault(place, []).append(attestation)


def by_body(question):
    return {"tee": True} if question["tee"] == "body" else {}


def by_header(question):
    return {"x-tee": "1"} if question["tee"] == "header" else {}


def settings(question, http):
    """What every client with openai's names for it is given."""
    return {
        "base_url": question["baseURL"],
        "api_key": question["apiKey"],
        "max_retries": 0,
        "http_client": http,
        "default_headers": by_header(question),
    }


def openai_client(question, wire):
    return openai.OpenAI(**settings(question, wire.http()))


def kept(question, path, id):
    """The attestation by its id, as a program asks for it beside its client."""
    client = openai_client(question, Wire())
    return client.get(f"{path}/{id}/attestation", cast_to=object)


def output(response):
    return "".join(
        item.arguments if item.type == "function_call" else "".join(part.text for part in item.content)
        for item in response.output
    )


def openai_responses(question, wire, heard):
    client = openai_client(question, wire)
    given = {"model": question["model"], "input": "Good day.", "tools": [WEATHER], "extra_body": by_body(question)}
    if question["mode"] == "whole":
        response = client.responses.create(**given)
        heard.text = output(response)
        heard.at("response.attestation", getattr(response, "attestation", None))
    elif question["mode"] == "stream":
        for event in client.responses.create(**given, stream=True):
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                heard.text += event.delta
            if event.type == "response.completed":
                heard.at("response.completed .response.attestation", getattr(event.response, "attestation", None))
    else:
        with client.responses.stream(**given) as stream:
            for event in stream:
                pass
            response = stream.get_final_response()
        heard.text = output(response)
        heard.at("get_final_response().attestation", getattr(response, "attestation", None))
    if question["tee"] != "off":
        heard.at("GET by x-attestation-id", kept(question, "/responses", wire.ids[0]))


def openai_agents(question, wire, heard):
    asyncio.run(run_agent(question, wire, heard))


async def run_agent(question, wire, heard):
    client = openai.AsyncOpenAI(**settings(question, openai.DefaultAsyncHttpxClient(**wire.async_hooks())))

    @agents.function_tool
    def get_weather(city: str) -> str:
        return f"18 degrees in {city}"

    extra = agents.ModelSettings(extra_body=by_body(question) or None)
    agent = agents.Agent(name="agent", model=question["model"], tools=[get_weather], model_settings=extra)
    config = agents.RunConfig(model_provider=agents.OpenAIProvider(openai_client=client))
    async with client:
        if question["mode"] == "whole":
            result = await agents.Runner.run(agent, "Good day.", run_config=config)
        else:
            result = agents.Runner.run_streamed(agent, "Good day.", run_config=config)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.completed":
                    found = getattr(event.data.response, "attestation", None)
                    heard.at("raw_response_event .data.response.attestation", found)
    heard.text = result.final_output
    if question["tee"] == "off":
        return
    for answer in result.raw_responses:
        heard.at("GET by raw_responses[].response_id", kept(question, "/responses", answer.response_id))


def anthropic_messages(question, wire, heard):
    client = anthropic.Anthropic(
        base_url=question["baseURL"].removesuffix("/v1"),
        auth_token=question["apiKey"],
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(**wire.hooks()),
        default_headers=by_header(question),
    )
    given = {
        "model": question["model"],
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "Good day."}],
        "tools": [{"name": "get_weather", "input_schema": CITY}],
        "extra_body": by_body(question),
    }
    message, id = None, None
    if question["mode"] == "whole":
        message = client.messages.create(**given)
        heard.at("message.attestation", getattr(message, "attestation", None))
    elif question["mode"] == "stream":
        for event in client.messages.create(**given, stream=True):
            if event.type == "message_start":
                id = event.message.id
            if event.type == "content_block_delta":
                heard.text += getattr(event.delta, "text", "") + getattr(event.delta, "partial_json", "")
            if event.type == "message_delta":
                heard.at("message_delta .attestation", getattr(event, "attestation", None))
    else:
        with client.messages.stream(**given) as stream:
            for event in stream:
                if event.type == "message_delta":
                    heard.at("message_delta .attestation", getattr(event, "attestation", None))
            message = stream.get_final_message()
        heard.at("get_final_message().attestation", getattr(message, "attestation", None))
    if message is not None:
        id = message.id
        for block in message.content:
            heard.text += block.text if block.type == "text" else json.dumps(block.input, separators=(",", ":"))
    if question["tee"] != "off":
        heard.at("GET by message.id", client.get(f"/v1/messages/{id}/attestation", cast_to=object))


def langchain_responses(question, wire, heard):
    model = ChatOpenAI(
        **settings(question, wire.http()),
        model=question["model"],
        use_responses_api=True,
        extra_body=by_body(question) or None,
        include_response_headers=True,
    ).bind_tools([{"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}])
    message = None
    if question["mode"] == "whole":
        message = model.invoke("Good day.")
    else:
        for chunk in model.stream("Good day."):
            message = chunk if message is None else message + chunk
    calls = message.tool_calls
    heard.text = json.dumps(calls[0]["args"], separators=(",", ":")) if calls else message.text
    heard.at("response_metadata.attestation", message.response_metadata.get("attestation"))
    if question["tee"] == "off":
        return
    heard.at("GET by message.id", kept(question, "/responses", message.id))
    header = message.response_metadata.get("headers", {}).get("x-attestation-id")
    heard.at("GET by response_metadata.headers", None if header is None else kept(question, "/responses", header))


def langchain_embeddings(question, wire, heard):
    model = OpenAIEmbeddings(
        **settings(question, wire.http()),
        model=question["model"],
        check_embedding_ctx_length=False,  # it would load a tokenizer, to send numbers in place of the texts
    )
    embedded(model.embed_documents(["one", "two"]), question, wire, heard)


def llama_index_embeddings(question, wire, heard):
    model = OpenAIEmbedding(
        model_name=question["model"],
        api_base=question["baseURL"],
        api_key=question["apiKey"],
        max_retries=0,
        http_client=wire.http(),
        default_headers=by_header(question),
    )
    embedded(model.get_text_embedding_batch(["one", "two"]), question, wire, heard)


def embedded(vectors, question, wire, heard):
    heard.text = ";".join(",".join(f"{number:.16g}" for number in vector) for vector in vectors)
    if question["tee"] != "off":
        heard.at("GET by x-attestation-id", kept(question, "/embeddings", wire.ids[0]))


ASK = {
    "openai": openai_responses,
    "openai-agents": openai_agents,
    "anthropic": anthropic_messages,
    "langchain-openai": langchain_responses,
    "langchain-openai embeddings": langchain_embeddings,
    "llama-index-embeddings-openai": llama_index_embeddings,
}

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    question, wire, heard, failure = json.loads(line), Wire(), Heard(), None
    try:
        ASK[question["client"]](question, wire, heard)
    except Exception as error:  # whatever a client throws is what the test looks at
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = {
            "type": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "message": f"{error} ({place.name}:{place.lineno})",
        }
    outcome = {"text": heard.text, "found": heard.found, "sent": wire.sent, "ids": wire.ids, "failure": failure}
    print(json.dumps(outcome), flush=True)

"""The Python half of ../driver.ts: says "ready", then reads one question a line, lets a client ask it, prints one outcome a line, as JSON."""

import json
import sys

import openai

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Wire:
    """Keeps what a client sends, and the id under which its attestation is kept."""

    def __init__(self):
        self.sent = ""
        self.attestation_id = None
        self.http = openai.DefaultHttpxClient(event_hooks={"request": [self._request], "response": [self._response]})

    def _request(self, request):
        if request.method == "POST":
            self.sent = request.read().decode()

    def _response(self, response):
        self.attestation_id = response.headers.get("x-attestation-id", self.attestation_id)


class Heard:
    """What has come so far: known too when the rest does not come."""

    def __init__(self):
        self.text = ""
        self.finish = None
        self.found = {}


def tee_body(question):
    return {"body": {"tee": True}, "wrong": {"tee": "yes"}}.get(question["tee"], {})


def tee_headers(question):
    return {"x-tee": "1"} if question["tee"] == "header" else {}


def by_id(client, question, id):
    """The attestation again, by the client's own means. cast_to=object: the parsed JSON as it is."""
    endpoint = "/chat/completions" if question["endpoint"] == "chat" else "/completions"
    return client.get(f"{endpoint}/{id}/attestation", cast_to=object)


def failure(error):
    return {
        "type": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "message": str(error),
    }


def drive(ask, models=None):
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if "models" in question:
            print(json.dumps(models(question)), flush=True)
            continue
        wire, heard, failed = Wire(), Heard(), None
        try:
            ask(question, wire, heard)
        except Exception as error:  # whatever a client throws is what the test looks at
            failed = failure(error)
        outcome = {"text": heard.text, "finish": heard.finish, "failure": failed, "sent": wire.sent, "found": heard.found}
        print(json.dumps(outcome), flush=True)
        wire.http.close()

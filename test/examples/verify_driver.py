"""Asks examples/python/verify.py one question a line (JSON), prints the name of the check that failed, or null, one a line."""

import contextlib
import io
import json
import sys
from base64 import b64decode
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "python"))

import verify  # noqa: E402


def ask(question):
    roots = [verify.NVIDIA_ROOT]
    if question["root"] is not None:
        roots += verify.x509.load_pem_x509_certificates(question["root"].encode())
    at = datetime.fromisoformat(question["at"])
    if "text" in question:
        verify.verify(question["text"], roots, at, question.get("request"), question.get("endpoint"))
    for one in question.get("devices", []):
        evidence = {"report": one["evidence"], "certificate_chain": one["certificate"], "arch": one["arch"]}
        with verify.checking("report_form", "the report can be read"):
            parts = verify.parts(evidence)
        verify.check_device(*parts, one["nonce"], roots, at)


print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    failed = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            ask(json.loads(line))
    except verify.Invalid as error:
        failed = error.check
    print(json.dumps(failed), flush=True)

"""The Python half of sealed-levels.python.ts: sends one request through a sealing transport, and prints what came of it, as JSON. A question a line."""

from __future__ import annotations

import json
import sys
from datetime import datetime

import httpx

from countersign_verify import CpuOptions, CpuRoots, Policy, Roots, Without
from countersign_verify.sealed import SealedTransport


def main() -> None:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        roots, reference = question["roots"], question["reference"]
        sessions: list[str] = []
        errors = []
        transport = SealedTransport(
            question["url"],
            at=datetime.fromisoformat(question["at"]),
            simulated_root=question["simulated_root"],
            roots=Roots(device=roots["device"]),
            cpu=CpuOptions(roots=CpuRoots(amd=roots["amd"]), reference=reference),
            without=Without(reference_values=True, revocation=True),
            policy=Policy(min_level=question["level"]),
            on_session=lambda report, sessions=sessions: sessions.append(report.level),
            on_refused=lambda error, errors=errors: errors.append(
                [error.code, str(error), type(error.__cause__).__name__]
            ),
        )
        with httpx.Client(transport=transport) as client:
            response = client.post(f"{question['url']}/v1/chat/completions", json={"secret": "canary"})
        print(
            json.dumps(
                {"status": response.status_code, "body": response.json(), "sessions": sessions, "errors": errors}
            ),
            flush=True,
        )


main()

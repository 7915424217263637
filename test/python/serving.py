"""A program that test/support/line-process.ts asks: "ready", then an answer a line for each question of standard input."""

import json
import sys
from collections.abc import Callable
from typing import Any


def serve(answer: Callable[[Any], object]) -> None:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)

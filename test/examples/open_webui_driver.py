"""Does with examples/open_webui_filter.py what Open WebUI does with a filter: inlet before a request, stream on every chunk."""

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from open_webui_filter import Filter  # noqa: E402


async def main(folder):
    one = Filter()
    one.valves = Filter.Valves(folder=folder)
    emitted = []

    async def emit(event):
        emitted.append(event)

    body = one.inlet({"model": "countersign-demo", "stream": True, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]})
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    chunks = []
    async with httpx.AsyncClient() as client:
        async with client.stream("POST", os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body, headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    chunks.append(await one.stream(json.loads(line[6:]), __event_emitter__=emit))
    print(json.dumps({"emitted": emitted, "chunks": chunks}))


asyncio.run(main(sys.argv[1]))

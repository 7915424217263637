"""
title: Countersign
description: Asks for an attestation with every answer, keeps it in a folder, and says so under the answer.

A filter function of Open WebUI: Admin Panel > Functions > New Function, paste this, save, enable, and make it global. What it
keeps is checked by `npm run verify -- FILE` or examples/python/verify.py. open-webui.md beside this says the rest.
"""

import json
import re
from pathlib import Path

from pydantic import BaseModel, Field


class Filter:
    class Valves(BaseModel):
        folder: str = Field("/app/backend/data/attestations", description="Where attestations are kept. They hold prompts and answers.")

    def __init__(self):
        self.valves = self.Valves()

    def inlet(self, body: dict) -> dict:
        """Every request, before it leaves."""
        body["tee"] = True
        return body

    async def stream(self, event: dict, __event_emitter__=None) -> dict:
        """Every chunk of the answer: the one that says how it finished carries the attestation."""
        attestation = event.pop("attestation", None)
        if attestation is None:
            return event
        folder = Path(self.valves.folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        nonce = re.sub("[^0-9a-f]", "", attestation["nonce"])  # it comes over the network, and becomes a file's name
        (folder / f"{nonce}.json").write_text(json.dumps(attestation, ensure_ascii=False), encoding="utf-8")
        if __event_emitter__ is not None:
            status = {"description": f"Attested, not yet verified: {nonce}", "done": True}
            await __event_emitter__({"type": "status", "data": status})
        return event

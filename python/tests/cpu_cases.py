"""The genuine evidence of processors, each case as the member `cpu` that would carry it; as test/verify/cpu/cases.ts has it."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from hashlib import sha256
from typing import Any

from countersign_verify.cpu.cpu_options import CpuExpected, CpuPolicy, CpuWithout
from countersign_verify.cpu.verify_cpu import CpuOptionFields
from genuine import PRESENT, genuine

END = b"-----END CERTIFICATE-----"
CASES: list[dict[str, Any]] = json.loads(genuine("cpu/expected.json")) if PRESENT else []


def case_of(name: str) -> dict[str, Any]:
    return next(one for one in CASES if one["id"] == name)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def file_of(one: dict[str, Any], name: str) -> bytes:
    """One file of a case, changed as the case says."""
    data = bytearray(genuine(f"cpu/{one['files'][name]}"))
    for change in one.get("mutate", ()):
        if change.get("file") != name:
            continue
        if "xor" in change:
            data[change["xor"]["offset"]] ^= change["xor"]["value"]
        if "truncate" in change:
            del data[change["truncate"] :]
    return bytes(data)


def _first_pem(data: bytes) -> bytes:
    """The first certificate of a PEM or DER file, as PEM."""
    if data[:1] == b"\x30":
        return b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(data) + b"\n" + END + b"\n"
    return data[: data.index(END) + len(END)]


def _chain_of(one: dict[str, Any]) -> str:
    if "auxblob" in one["files"]:
        return _chain_of_table(file_of(one, "auxblob"))
    # Azure's cases name no authority: it is told by the product.
    product = "genoa" if "genoa" in one["id"] else "milan"
    authority = one["files"].get("ca", f"roots/ask_ark_{product}.pem")
    return b64(_first_pem(file_of(one, "leaf")) + b"\n" + _first_pem(genuine(f"cpu/{authority}")) + b"\n")


def _chain_of_table(table: bytes) -> str:
    """GHCB's certificate table (AMD 56421 §4.1.8.1): GUID, offset, length; a GUID of zeros ends it."""
    names = {"63da758d": "leaf", "4ab7b379": "authority"}
    found: dict[str, bytes] = {}
    at = 0
    while any(table[at : at + 8]):
        first, length = (int.from_bytes(table[at + i : at + i + 4], "little") for i in (16, 20))
        found[names.get(table[at : at + 4].hex(), "other")] = table[first : first + length]
        at += 24
    return b64(found["leaf"] + b"\n" + found["authority"] + b"\n")


def _collateral_of(one: dict[str, Any]) -> dict[str, Any]:
    if "collateral" not in one["files"]:
        return {}
    collateral = json.loads(genuine(f"cpu/{one['files']['collateral']}"))
    for change in one.get("mutate", ()):
        if "replace" in change:
            collateral[change["member"]] = collateral[change["member"]].replace(*change["replace"], 1)
    return {"collateral": collateral}


def member_of(one: dict[str, Any]) -> dict[str, Any]:
    """The member `cpu`."""
    kind = one["kind"]
    if kind == "snp":
        return {"type": "SEV_SNP", "report": b64(file_of(one, "report")), "certificates": _chain_of(one)}
    if kind == "tdx":
        return {"type": "TDX", "report": b64(file_of(one, "quote")), **_collateral_of(one)}
    if kind == "eventlog":
        log = bytearray(file_of(one, "log"))
        if any("note" in change for change in one.get("mutate", ())):
            log[_last_digest(bytes(log))] ^= 1
        return {"type": "TDX", "report": b64(file_of(one, "quote")), "event_log": b64(bytes(log))}
    if kind == "software":
        return member_of(case_of("milan-v2-aci"))
    quote = json.loads(file_of(one, "tpm_quote"))
    signed = {name: b64(bytes.fromhex(quote[name])) for name in ("message", "signature")}
    tpm = {**signed, "pcrs": quote["pcrs_sha256"]}
    report = b64(file_of(one, "hcl"))
    if kind == "az-snp":
        return {"type": "AZURE_SEV_SNP", "report": report, "certificates": _chain_of(one), "tpm": tpm}
    quoted = b64(file_of(one, "quote"))
    return {"type": "AZURE_TDX", "report": report, "quote": quoted, "tpm": tpm, **_collateral_of(one)}


def _last_digest(log: bytes) -> int:
    """Where the SHA-384 digest of a CCEL's last event begins."""
    sizes = {4: 20, 11: 32, 12: 48}

    def number(at: int, size: int = 4) -> int:
        return int.from_bytes(log[at : at + size], "little")

    found, at = -1, 32 + number(28)
    while at + 4 <= len(log) and number(at) != 0xFFFFFFFF:
        after = at + 12
        for _ in range(number(at + 8)):
            algorithm = number(after, 2)
            found = after + 2 if algorithm == 12 else found
            after += 2 + sizes[algorithm]
        at = after + 4 + number(after)
    return found


def reference_of(one: dict[str, Any]) -> dict[str, Any]:
    """Of a case of software: the guest itself, with the launch file that the case has."""
    guest = {"type": "SEV_SNP", "measurement": [file_of(one, "report")[0x90:0xC0].hex()], "launch_in": "host_data"}
    return {"version": 1, "cpu": [guest], "launch": [sha256(file_of(one, "policy")).hexdigest()]}


OUTDATED = (
    ("genoa-v3-caci", "valid", "cpu_tcb tcb_not_accepted", "SNP firmware 23, of Genoa at least 27"),
    ("genoa-v3-auxblob", "valid", "cpu_tcb tcb_not_accepted", "SNP firmware 23, of Genoa at least 27"),
    ("snp-genoa", "valid", "cpu_tcb tcb_not_accepted", "SNP firmware 23, of Genoa at least 27"),
)
"""
Genuine evidence whose firmware is older than the least TCB that holds where the caller names none: its name, the
verdict without a least TCB, the verdict by default, the reason.
"""


def options_of(one: dict[str, Any]) -> CpuOptionFields:
    """How a case is verified. Outdated evidence is verified without a least TCB, so that its other bytes decide."""
    # `without` says of all Azure cases that revocation is left out; where a case has collateral it is expected to pass.
    revocation = "revocation" in one.get("without", ()) and "collateral" not in one["files"]
    policy = one.get("policy", {})
    min_tcb = {"Genoa": {}} if any(name == one["id"] for name, *_ in OUTDATED) else policy.get("minTcb")
    options = CpuOptionFields(
        at=datetime.fromisoformat(one["at"].replace("Z", "+00:00")),
        policy=CpuPolicy(products=policy.get("products"), tcb=policy.get("tcb"), min_tcb=min_tcb),
        without=CpuWithout(revocation=revocation),
        expected=CpuExpected(report_data=one.get("nonce")),
    )
    if one["kind"] == "software":
        options["reference"] = reference_of(one)
    return options


def verdict_of(checks: Any, only: str | None = None) -> str:
    """`CHECK CODE` of the first check that failed, or of `only` whether it did; `valid` where none failed."""
    failed = (one for one in checks if one.status == "fail" and only in (None, one.name))
    return next((f"{one.name} {one.code}" for one in failed), "valid")

"""
The relying party's reference values: guests that it knows by what they were started with, and launch files that it
accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common.checks import CheckFailure, Passed, passed
from ..proto.attestation.launch import Launch
from ..proto.bytes import is_longer
from ..proto.strict_json import JsonTextError, duplicate_member, parse, whole_number
from .cpu_options import CpuSoftware, CpuType
from .evidence.byte_reader import is_zero
from .evidence.event_log import LogEvent, ReplayedLog, runtime_payload
from .evidence.snp_report import SnpReport
from .evidence.tdx_quote import TdReport


@dataclass(frozen=True)
class Measured:
    """What is compared."""

    type: CpuType
    snp: SnpReport | None
    tdx: TdReport | None
    pcrs: Sequence[bytes] | None
    has_event_log: bool


# Reading the list.

MAX_CHARACTERS = 1024 * 1024
MAX_ENTRIES = 1024
HEX_48 = re.compile(r"[0-9a-f]{96}")
HEX_32 = re.compile(r"[0-9a-f]{64}")
PCR = re.compile(r"0|[1-9][0-9]?")
PCRS = 24

Json = Mapping[str, Any]


def read_reference(value: object) -> Json:
    """`value`: the list: JSON text, or parsed. @raises TypeError naming what is wrong."""
    found = _record(_parsed(value) if isinstance(value, str) else value, "it")
    _only(found, ("version", "cpu", "launch"), "")
    if whole_number(found.get("version")) != 1:
        raise _wrong("version is not 1")
    _values(found.get("launch"), "launch", HEX_32)
    for index, entry in enumerate(_list(found.get("cpu"), "cpu")):
        _check_entry(_record(entry, f"cpu[{index}]"), f"cpu[{index}].")
    return found


def _check_entry(entry: Json, at: str) -> None:
    if "vmpl" in entry and not all(whole_number(level) in (0, 1, 2, 3) for level in _list(entry["vmpl"], f"{at}vmpl")):
        raise _wrong(f"{at}vmpl is not a list of 0 to 3")
    kind = entry.get("type")
    if kind == "SEV_SNP":
        _only(entry, ("type", "measurement", "vmpl", "id_key_digest", "launch_in"), at)
        _values(entry.get("measurement"), f"{at}measurement", HEX_48)
        if "id_key_digest" in entry:
            _values(entry["id_key_digest"], f"{at}id_key_digest", HEX_48)
        _launch_in(entry, at, ("host_data", "measurement"))
    elif kind == "TDX":
        _only(entry, ("type", "mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3", "launch_in"), at)
        for name in ("mrtd", "rtmr1", "rtmr2"):
            _values(entry.get(name), f"{at}{name}", HEX_48)
        if "rtmr0" not in entry or entry["rtmr0"] is not None:
            _values(entry.get("rtmr0"), f"{at}rtmr0", HEX_48)
        if "rtmr3" in entry:
            _values(entry["rtmr3"], f"{at}rtmr3", HEX_48)
        _launch_in(entry, at, ("mrconfigid", "rtmr3", "measurement"))
    elif kind in ("AZURE_SEV_SNP", "AZURE_TDX"):
        _only(entry, ("type", "measurement", "vmpl", "pcrs", "launch_in"), at)
        _values(entry.get("measurement"), f"{at}measurement", HEX_48)
        pcrs = _record(entry.get("pcrs"), f"{at}pcrs")
        if not pcrs:
            raise _wrong(f"{at}pcrs names no register")
        for pcr, digests in pcrs.items():
            if PCR.fullmatch(pcr) is None or int(pcr) >= PCRS:
                raise _wrong(f"{at}pcrs has a register that there is not")
            _values(digests, f"{at}pcrs[{pcr}]", HEX_32)
        _launch_in(entry, at, ("measurement",))
    else:
        raise _wrong(f"{at}type is not known")


def _launch_in(entry: Json, at: str, places: Sequence[str]) -> None:
    if not isinstance(entry.get("launch_in"), str) or entry["launch_in"] not in places:
        raise _wrong(f"{at}launch_in is not {' or '.join(places)}")


def _wrong(message: str) -> TypeError:
    return TypeError(f"reference cannot be used: {message}")


def _parsed(text: str) -> object:
    if is_longer(text, MAX_CHARACTERS):
        raise _wrong(f"more than {MAX_CHARACTERS} characters")
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise _wrong("it is not JSON") from cause
    if duplicate_member(text) is not None:
        raise _wrong("a member appears twice")
    return value


def _record(value: object, name: str) -> Json:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value):
        raise _wrong(f"{name} is not an object")
    return value


def _only(value: Json, names: Sequence[str], at: str) -> None:
    other = next((name for name in value if name not in names), None)
    if other is not None:
        raise _wrong(f"{at}{other[:64]} is no member of it")


def _list(value: object, name: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_ENTRIES:
        raise _wrong(f"{name} is not a list of 1 to {MAX_ENTRIES}")
    return value


def _values(value: object, name: str, digits: re.Pattern[str]) -> None:
    if not all(isinstance(one, str) and digits.fullmatch(one) for one in _list(value, name)):
        raise _wrong(f"{name} is not a list of {64 if digits is HEX_32 else 96} lowercase hex digits")


# Comparing.


def check_measurement(measured: Measured, reference: Json) -> Passed[Json]:
    """@raises CheckFailure: measurement_mismatch"""
    of_type = [entry for entry in reference["cpu"] if entry["type"] == measured.type]
    mismatches = [_mismatch(entry, measured) for entry in of_type]
    found = next((entry for entry, other in zip(of_type, mismatches, strict=True) if other is None), None)
    if found is not None:
        left = _uncompared(found)
        return passed("the guest is one of the caller's" + ("" if left is None else f"; {left}"), found)
    reason = f": {mismatches[0]} is another" if len(of_type) == 1 else ""
    message = f"the guest is none of the caller's {len(of_type)} of type {measured.type}{reason}"
    raise CheckFailure("measurement_mismatch", message)


def _mismatch(entry: Json, measured: Measured) -> str | None:
    """The first value in which the guest differs from the reference; None where it matches."""
    snp, tdx = measured.snp, measured.tdx

    def differs(of: Sequence[str] | None, value: bytes | None) -> bool:
        return of is not None and (value is None or value.hex() not in of)

    if entry["type"] == "TDX":
        if tdx is None or differs(entry["mrtd"], tdx.mr_td):
            return "MRTD"
        for index, register in enumerate(tdx.rtmrs):
            if differs(entry.get(f"rtmr{index}"), register):
                return f"RTMR{index}"
        is_open = "rtmr3" not in entry and not measured.has_event_log and not is_zero(tdx.rtmrs[3])
        return "RTMR3, which no event log explains," if is_open else None
    if differs(entry["measurement"], snp.measurement if snp is not None else tdx.mr_td if tdx is not None else None):
        return "MRTD" if snp is None else "MEASUREMENT"
    if snp is not None and snp.vmpl not in entry.get("vmpl", (0,)):
        return f"VMPL {snp.vmpl}"
    if entry["type"] == "SEV_SNP":
        own = None if snp is None else snp.id_key_digest
        return "ID_KEY_DIGEST" if differs(entry.get("id_key_digest"), own) else None
    pcrs = measured.pcrs
    for index in sorted(map(int, entry["pcrs"])):
        if differs(entry["pcrs"][str(index)], None if pcrs is None else pcrs[index]):
            return f"PCR {index}"
    return None


def _uncompared(entry: Json) -> str | None:
    """
    What a reference value leaves out, in words for the verdict. Tables of ACPI hold code, which the kernel runs with
    all rights.
    """
    if entry["type"] == "SEV_SNP":
        return "nothing measures the ACPI tables that the host supplies, and they are code"
    if entry["type"] == "TDX" and entry["rtmr0"] is None:
        return "the ACPI tables that the host supplies (RTMR0) were not compared, and they are code"
    if entry["type"] == "TDX":
        return None
    compared = ", ".join(sorted(entry["pcrs"], key=int))
    return f"of the TPM's registers only {compared} were compared, and Azure's paravisor, which holds them, is trusted"


RTMR3_OPEN = "what extended RTMR3 while the guest ran is not explained by the event log"


@dataclass(frozen=True)
class NamedLaunch:
    """The launch file that a session's statement names."""

    sha256: str | None = None
    """In hex; None: the statement names none."""
    file: Launch | None = None
    """None: it is not at hand."""


def check_launch(
    guest: Json,
    reference: Json,
    measured: Measured,
    named: NamedLaunch,
    replayed: Passed[ReplayedLog] | None,
) -> Passed[CpuSoftware | None]:
    """Compares the launch file that the guest was started with. `replayed`: the event log, if there is one.

    @raises CheckFailure: software_mismatch
    """
    events = () if replayed is None else replayed.value.events
    launch = _launch_of(guest["launch_in"], measured, events, named.sha256)
    if launch not in reference["launch"]:
        raise CheckFailure("software_mismatch", f"the launch file {launch} is none of the caller's")
    where = guest["launch_in"]
    place = "by the measured guest" if where == "measurement" else f"in {PLACES[where]}"
    log = "" if replayed is None else f"{replayed.detail}; "
    is_explained = replayed is None or replayed.value.explains_rtmr3
    is_open = guest["type"] == "TDX" and "rtmr3" not in guest and not is_explained
    left = [one for one in (_uncompared(guest), RTMR3_OPEN if is_open else None) if one is not None]
    file = named.file
    software = CpuSoftware(
        launch,
        images=None if file is None else file.images,
        weights=None if file is None else file.weights,
        model=None if file is None else file.model,
        uncompared="; ".join(left) or None,
    )
    return passed(f"{log}a launch file of the caller's is named {place}", software)


# The event in RTMR3 that the image's first unit writes.
LAUNCH_EVENT = "countersign-launch"
PLACES = {
    "host_data": "HOST_DATA",
    "mrconfigid": "MRCONFIGID",
    "rtmr3": "RTMR3",
    "measurement": "the statement",
}
DIGEST_BYTES = 32


def _launch_of(place: str, measured: Measured, events: Sequence[LogEvent], named: str | None) -> str:
    """
    The launch file's digest, from where the reference says that it stands. @raises CheckFailure: software_mismatch
    """
    found: bytes | None = None
    if place == "host_data":
        found = None if measured.snp is None else measured.snp.host_data
    elif place == "mrconfigid":
        found = None if measured.tdx is None else _unpadded(measured.tdx.mr_config_id)
    elif place == "rtmr3":
        found = runtime_payload(events, LAUNCH_EVENT)
    digest = named if place == "measurement" else None if found is None else found.hex()
    if digest is None:
        raise CheckFailure("software_mismatch", f"no launch file is named in {PLACES[place]}")
    if named is not None and named != digest:
        raise CheckFailure("software_mismatch", f"the statement names another launch file than {PLACES[place]}")
    return digest


def _unpadded(field: bytes) -> bytes | None:
    """48 bytes hold a digest of 32 and zeros; None where there is more."""
    return field[:DIGEST_BYTES] if is_zero(field[DIGEST_BYTES:]) else None

"""
Reads the logs of a guest's measured events, and replays them: CCEL, which firmware and kernel write (TCG "PC Client
Platform Firmware Profile", §10), and the JSON that dstack and our own unit write for RTMR3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha384

from ...common.checks import CheckFailure, Passed, passed
from ...proto.bytes import EncodingError, from_hex, from_utf8, utf8
from ...proto.strict_json import JsonTextError, parse, whole_number
from .byte_reader import ByteReader


@dataclass(frozen=True)
class LogEvent:
    """One event that was extended into a register."""

    rtmr: int
    """0 to 3."""
    type: int
    digest: bytes
    """SHA-384, as extended into the register. It is checked against the data only where `name` is set."""
    name: str | None
    """Of an event of dstack's form in RTMR3, whose digest is over name and data."""
    data: bytes


MAX_LOG_BYTES = 1024 * 1024
MAX_EVENTS = 8192
MAX_ALGORITHMS = 16
SHA384 = 0x000C
SHA384_BYTES = 48
EV_NO_ACTION = 3
# Fills the unused memory of a log.
UNUSED = 0xFFFFFFFF
RUNTIME_RTMR = 3


def _bad(message: str) -> CheckFailure:
    return CheckFailure("event_log_mismatch", f"the event log: {message}")


@dataclass(frozen=True)
class ReplayedLog:
    events: Sequence[LogEvent]
    explains_rtmr3: bool
    """
    False where the log has no event of RTMR3, which the guest has extended. Linux's tsm interface extends it without an
    entry in CCEL.
    """


def check_event_log(rtmrs: Sequence[bytes], log: bytes) -> Passed[ReplayedLog]:
    """@raises CheckFailure: event_log_mismatch"""
    events = read_event_log(log)
    registers = replay(events)
    wrong = next((i for i, register in enumerate(registers) if register != rtmrs[i]), None)
    if wrong is None:
        return passed(f"{len(events)} events replay to all four RTMRs", ReplayedLog(events, True))
    if wrong != RUNTIME_RTMR or any(event.rtmr == RUNTIME_RTMR for event in events):
        raise _bad(f"it does not replay to RTMR{wrong}")
    detail = f"{len(events)} events replay to RTMR0 to 2; RTMR3 is not explained by the log"
    return passed(detail, ReplayedLog(events, False))


def replay(events: Sequence[LogEvent]) -> list[bytes]:
    """Replays the events into four registers that begin as zero: each becomes SHA-384(register ‖ digest)."""
    registers = [bytes(SHA384_BYTES)] * 4
    for event in events:
        registers[event.rtmr] = sha384(registers[event.rtmr] + event.digest).digest()
    return registers


def read_event_log(log: bytes) -> Sequence[LogEvent]:
    """@raises CheckFailure: event_log_mismatch"""
    if len(log) > MAX_LOG_BYTES:
        raise _bad("it is too large")
    return _read_json_log(log) if log.startswith(b"[") else _read_ccel(log)


def _read_ccel(log: bytes) -> Sequence[LogEvent]:
    """An event in the old form that says which digests follow, then events with several digests each."""
    reader = ByteReader(log, _bad)
    reader.number(4)
    if reader.number(4) != EV_NO_ACTION:
        raise _bad("it has no head")
    reader.take(20)
    sizes = _read_head(reader.take(reader.number(4)))
    events: list[LogEvent] = []
    count = 0
    while reader.left >= 4:
        register = reader.number(4)
        if register == UNUSED:
            break
        if count == MAX_EVENTS:
            raise _bad("it has too many events")
        count += 1
        kind = reader.number(4)
        extended = _read_digests(reader, sizes)
        data = reader.take(reader.number(4))
        if kind == EV_NO_ACTION:
            continue
        # Index 0 is MRTD, which cannot be extended once a guest runs.
        if not 1 <= register <= 4:
            raise _bad("an event of a register that there is not")
        events.append(LogEvent(register - 1, kind, extended, None, data))
    return events


def _read_head(head: bytes) -> Mapping[int, int]:
    """TCG_EfiSpecIdEvent: the sizes of digests by algorithm."""
    reader = ByteReader(head, _bad)
    if reader.take(16) != b"Spec ID Event03\0":
        raise _bad("it is of another form")
    reader.take(8)
    count = reader.number(4)
    if count > MAX_ALGORITHMS:
        raise _bad("it names too many algorithms")
    sizes = {reader.number(2): reader.number(2) for _ in range(count)}
    if sizes.get(SHA384) != SHA384_BYTES:
        raise _bad("it has no SHA-384 digests")
    return sizes


def _read_digests(reader: ByteReader, sizes: Mapping[int, int]) -> bytes:
    count = reader.number(4)
    if count > MAX_ALGORITHMS:
        raise _bad("an event has too many digests")
    extended: bytes | None = None
    for _ in range(count):
        algorithm = reader.number(2)
        size = sizes.get(algorithm)
        if size is None:
            raise _bad("a digest of an algorithm that the head does not name")
        value = reader.take(size)
        if algorithm == SHA384 and extended is None:
            extended = value
    if extended is None:
        raise _bad("an event without a SHA-384 digest")
    return extended


def _read_json_log(log: bytes) -> Sequence[LogEvent]:
    """
    `[{imr, event_type, digest, event, event_payload}]`: of RTMR3 the digest is over the type, the name and the
    payload.
    """
    try:
        value = parse(from_utf8(log))
    except (JsonTextError, EncodingError) as cause:
        raise _bad("it is not JSON") from cause
    if not isinstance(value, list) or len(value) > MAX_EVENTS:
        raise _bad("it is no list of events, or too long")
    events: list[LogEvent] = []
    for event in [_read_json_event(one) for one in value]:
        own = event.digest
        if event.name is not None:
            own = sha384(event.type.to_bytes(4, "little") + utf8(f":{event.name}:") + event.data).digest()
        if event.digest and own != event.digest:
            raise _bad("the digest of an event in RTMR3 is not over its name and data")
        if event.type != EV_NO_ACTION:
            events.append(replace(event, digest=own))
    return events


def _read_json_event(value: object) -> LogEvent:
    one = value if isinstance(value, dict) else {}
    imr, kind = whole_number(one.get("imr")), whole_number(one.get("event_type"))
    extended, event, data = one.get("digest"), one.get("event"), one.get("event_payload")
    is_event = imr is not None and 0 <= imr <= RUNTIME_RTMR and kind is not None and 0 <= kind <= UNUSED
    if not (is_event and isinstance(extended, str) and isinstance(event, str) and isinstance(data, str)):
        raise _bad("it has an event of another form")
    # dstack leaves the digest of an event in RTMR3 empty.
    if len(extended) != 2 * SHA384_BYTES and not (imr == RUNTIME_RTMR and extended == ""):
        raise _bad("it has an event of another form")
    name = event if imr == RUNTIME_RTMR else None
    # The digest is over "type:name:payload": where a name could hold a colon, one digest would be of several names.
    if name is not None and ":" in name:
        raise _bad("the name of an event in RTMR3 has a colon")
    try:
        return LogEvent(int(imr or 0), int(kind or 0), from_hex(extended), name, from_hex(data))
    except EncodingError as cause:
        raise _bad("an event is not in hex") from cause


def runtime_payload(events: Sequence[LogEvent], name: str) -> bytes | None:
    """
    The payload of the first event of RTMR3; None where it has another name, or another event has the same. Software
    that was launched can add events, but only behind it. `events`: replayed.
    """
    own = [event for event in events if event.rtmr == RUNTIME_RTMR]
    named = [event for event in own if event.name == name]
    return named[0].data if len(named) == 1 and own[0] is named[0] else None

"""
Holds the devices of one list of evidence against each other: all GPUs in one mode, and behind protected PCIe each of
them at the switches that signed beside it. The opaque data of each names the others, by 8-byte ids:

    a GPU      the switch at each of its links, zeros where a link leads nowhere, and the bytes of an id the other way
               round
    a switch   its own id, and the GPUs at its ports

A GPU states no id of its own, nor does its certificate hold one: the GPUs that the switches name can only be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ..common.checks import CheckFailure, Passed, Skipped, seen, skipped
from .spdm.opaque import OpaqueData


@dataclass(frozen=True)
class DeviceClaims:
    """The claims of one device's signed report. None: the report does not have it."""

    kind: Literal["gpu", "switch"]
    arch: Literal["HOPPER", "BLACKWELL", "LS10"]
    chip: str
    """`GH100`"""
    model: str
    """`GH100 A01 GSP BROM`"""
    ueid: str
    """The leaf certificate's serial number, in decimal."""
    driver: str | None
    vbios: str | None
    mode: Literal["spt", "mpt", "ppcie"] | None
    """How it is passed through to its guest."""
    measurements_matched: int | None
    """Measurements that were compared with reference values."""

    def to_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class VerifiedDevice:
    """A device whose report and chain passed."""

    identity: str | None
    """
    SHA-256 in hex of the boot ROM's key, by which sessions and `policy.devices` list it; None for a chain without one.
    """
    claims: DeviceClaims
    opaque: OpaqueData
    simulated: bool


@dataclass(frozen=True)
class LeftOpen:
    """What correct reports leave open, because a device that they name did not sign, or because they lack a field."""

    reason: str
    what: str | None
    """
    What is not proven for this reason, to follow "That"; None where it adds nothing to the claims of each device.
    """


@dataclass(frozen=True)
class _Placed:
    index: int
    """Counted from 0 in the list."""
    device: VerifiedDevice


def check_topology(devices: Sequence[VerifiedDevice]) -> Passed[Literal[True]] | Skipped:
    """
    `devices`: every device of the list, its report and chain found right. @raises CheckFailure: topology_mismatch
    """
    placed = [_Placed(index, device) for index, device in enumerate(devices)]
    gpus = [one for one in placed if one.device.claims.kind == "gpu"]
    switches = [one for one in placed if one.device.claims.kind == "switch"]
    for gpu in gpus:
        if not _same_mode(gpu.device, gpus[0].device):
            raise _mismatch(f"device {gpu.index} is in another mode than device {gpus[0].index}")
    if gpus and _is_protected(gpus[0].device):
        _check_fabric(gpus, switches)
    open_ends = left_open(devices)
    if open_ends:
        return skipped("; ".join(one.reason for one in open_ends))
    count = "one GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs in one mode"
    if not switches:
        return seen(f"{count}, not behind protected PCIe")
    return seen(f"{count}, behind protected PCIe, and each of the {len(switches)} switches that they name")


def left_open(devices: Sequence[VerifiedDevice]) -> list[LeftOpen]:
    """Empty where the check passes. To be called where no report contradicts another."""
    gpus = [device for device in devices if device.claims.kind == "gpu"]
    switches = [device for device in devices if device.claims.kind == "switch"]
    if not gpus:
        return [LeftOpen("no GPU signed", "any GPU is genuine")]
    if not any(map(_is_protected, gpus)):
        if switches:
            reason = "no GPU says that it is behind protected PCIe"
            return [LeftOpen(reason, "the switches are those between these GPUs")]
        if all(_stated_mode(gpu) is not None for gpu in gpus):
            return []
        return [LeftOpen("not every report says whether its GPU is behind protected PCIe", None)]
    what = "the switches between the GPUs are genuine"
    if not switches:
        return [LeftOpen("a GPU is behind protected PCIe, and no switch signed", what)]
    found = []
    named = len({one for gpu in gpus for one in _switches_of(gpu)})
    ports = len({one for switch in switches for one in _gpus_of(switch)})
    if named > len(switches):
        found.append(LeftOpen(f"the GPUs name {named} switches, and {len(switches)} signed", what))
    if ports > len(gpus):
        reason = f"the switches name {ports} GPUs, and {len(gpus)} signed"
        found.append(LeftOpen(reason, "every GPU at these switches is genuine"))
    return found


def _check_fabric(gpus: Sequence[_Placed], switches: Sequence[_Placed]) -> None:
    """
    Each GPU names the same switches, and each switch is one of them and names the same GPUs, no fewer than signed.
    """
    first = gpus[0]
    named = _switches_of(first.device)
    for gpu in gpus:
        if gpu.device.opaque.fabric_ids is None and switches:
            raise _mismatch(f"device {gpu.index} does not say at which switches it is")
        if _switches_of(gpu.device) != named:
            raise _mismatch(f"device {gpu.index} is at other switches than device {first.index}")
    if not switches:
        return
    own: set[str] = set()
    ports = _gpus_of(switches[0].device)
    for switch in switches:
        ids = switch.device.opaque.fabric_ids or ()
        if len(ids) != 1:
            raise _mismatch(f"device {switch.index} does not say which switch it is")
        if ids[0] not in named:
            raise _mismatch(f"device {switch.index} is a switch that the GPUs do not name")
        if ids[0] in own:
            raise _mismatch(f"device {switch.index} says that it is a switch that signed before it")
        own.add(ids[0])
        if _gpus_of(switch.device) != ports:
            raise _mismatch(f"device {switch.index} has other GPUs at its ports than device {switches[0].index}")
    if len(ports) < len(gpus):
        raise _mismatch(f"the switches name {len(ports)} GPUs, and {len(gpus)} signed")


def _is_protected(device: VerifiedDevice) -> bool:
    return device.claims.mode == "ppcie"


def _stated_mode(device: VerifiedDevice) -> str | None:
    """None: the report has no such field."""
    if device.claims.mode is not None:
        return device.claims.mode
    return "not ppcie" if device.opaque.protected_pcie is False else None


def _same_mode(a: VerifiedDevice, b: VerifiedDevice) -> bool:
    """
    Reports of drivers before 590 only have whether it is protected PCIe, and those of the oldest not even that: then it
    is not.
    """
    if _is_protected(a) or _is_protected(b):
        return _is_protected(a) and _is_protected(b)
    return a.claims.mode is None or b.claims.mode is None or a.claims.mode == b.claims.mode


def _is_id(name: str) -> bool:
    """Zeros stand for no device."""
    return name.strip("0") != ""


def _switches_of(device: VerifiedDevice) -> frozenset[str]:
    """The switches at a GPU's links, as they write their ids themselves."""
    ids = device.opaque.fabric_ids or ()
    return frozenset(bytes.fromhex(name)[::-1].hex() for name in ids if _is_id(name))


def _gpus_of(device: VerifiedDevice) -> frozenset[str]:
    return frozenset(name for name in device.opaque.gpu_ids or () if _is_id(name))


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("topology_mismatch", message)

"""The opaque data of NVIDIA's in a report, in both of its formats. It is signed with the report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from ...common.checks import CheckFailure

PassThrough = Literal["spt", "mpt", "ppcie"]
"""How a GPU is passed through: one to a guest, several to a guest, or several over a protected PCIe bus."""


@dataclass(frozen=True)
class OpaqueData:
    """Every member is None where the report does not have its field: which fields there are depends on the driver."""

    format: Literal["legacy", "NVDAOD"]
    version: int
    """0 for drivers that name no version."""
    driver_version: str | None
    vbios_version: str | None
    """As NVIDIA writes it: `96.00.9F.00.01`."""
    project: str | None
    project_sku: str | None
    chip_sku: str | None
    chip: str | None
    """`GB100`; Hopper names none."""
    fwid: str | None
    """The firmware's digest, lowercase hex."""
    nvdec0_disabled: bool | None
    """The video decoder is fused off, and its measurement (RIM index 35) stays empty."""
    protected_pcie: bool | None
    pass_through: PassThrough | None
    fabric_ids: tuple[str, ...] | None
    """
    On the NVLink fabric, as hex of the bytes: a switch's own id; on a GPU one for each of its links. topology.py reads
    them.
    """
    gpu_ids: tuple[str, ...] | None
    """Of the GPUs at a switch's ports."""
    measurement_counts: tuple[int, ...] | None
    """How often each measurement was extended."""
    svns: Mapping[int, int]
    """Security version numbers by field type; NVDAOD alone has them."""


def bad(message: str) -> CheckFailure:
    return CheckFailure("report_malformed", message)


def little_endian(data: bytes) -> int:
    return int.from_bytes(data, "little")


class Field:
    """What is known of the field types; NVIDIA's verifiers name them so. Others are skipped."""

    DRIVER_VERSION = 3
    VBIOS_VERSION = 6
    NVDEC0_STATUS = 11
    MEASUREMENT_COUNTS = 12
    CHIP_SKU = 15
    PROJECT = 17
    PROJECT_SKU = 18
    FWID = 20
    PROTECTED_PCIE_STATUS = 21
    FABRIC_IDS = 22
    GPU_IDS = 26
    OPAQUE_DATA_VERSION = 34
    CHIP_INFO = 35
    FEATURE_FLAG = 36


_KNOWN = frozenset(number for number in vars(Field).values() if isinstance(number, int))
_MAGIC = b"NVDAOD"
# Magic (6), profile (2), major, minor, reserved (2).
_HEADER_BYTES = 12
# Newer majors may mean other things by the same types.
_MAX_VERSION = 2
_SVN_VALUE_TYPE = 0x87
# How the hardware writes yes and no.
_STATUS = {b"\xaa": True, b"\x55": False}
_PASS_THROUGH: tuple[PassThrough, ...] = ("spt", "mpt", "ppcie")
_ID_BYTES = 8
# What follows them in a switch's field says which port leads to which.
_GPU_IDS = 8
_MAX_TEXT_BYTES = 256
_MAX_NUMBER_BYTES = 6
# What ECMAScript's trim takes away, of the characters that are one byte.
_SPACE = "\t\n\v\f\r \u00a0"
_TEXT = re.compile(r"[!-~]{1,64}")
_VERSION = re.compile(r"[0-9A-F]{2}(\.[0-9A-F]{2}){4}")


@dataclass(frozen=True)
class _Value:
    type: int
    """NVDAOD's type of the value; 0 in the legacy format."""
    data: bytes


_Fields = Mapping[int, _Value]


def parse_opaque(data: bytes) -> OpaqueData:
    """@raises CheckFailure: report_malformed"""
    headed = len(data) >= _HEADER_BYTES and data.startswith(_MAGIC)
    if headed and data[6:8] != b"\x00\x00":
        raise bad("opaque data: an unknown profile")
    fields: dict[int, _Value] = {}
    for kind, value in _read_fields(data, headed):
        if kind in _KNOWN and kind in fields:
            raise bad(f"opaque data: field {kind} stands twice")
        fields[kind] = value
    version = data[8] if headed else _number(fields, Field.OPAQUE_DATA_VERSION)
    if version > _MAX_VERSION:
        raise bad(f"opaque data: version {version} is not known")
    nvdec0 = _status(fields, Field.NVDEC0_STATUS)
    fwid = fields.get(Field.FWID)
    return OpaqueData(
        format="NVDAOD" if headed else "legacy",
        version=version,
        driver_version=_text(fields, Field.DRIVER_VERSION),
        vbios_version=_vbios_version(fields),
        project=_text(fields, Field.PROJECT),
        project_sku=_text(fields, Field.PROJECT_SKU),
        chip_sku=_text(fields, Field.CHIP_SKU),
        chip=_text(fields, Field.CHIP_INFO),
        fwid=None if fwid is None else fwid.data.hex(),
        nvdec0_disabled=None if nvdec0 is None else not nvdec0,
        protected_pcie=_status(fields, Field.PROTECTED_PCIE_STATUS),
        pass_through=_pass_through(fields, version),
        fabric_ids=_ids(fields, Field.FABRIC_IDS),
        gpu_ids=_ids(fields, Field.GPU_IDS, _GPU_IDS),
        measurement_counts=_counts(fields),
        svns={
            kind: little_endian(value.data)
            for kind, value in fields.items()
            if value.type == _SVN_VALUE_TYPE and len(value.data) == 2
        },
    )


def _read_fields(data: bytes, headed: bool) -> Iterator[tuple[int, _Value]]:
    """
    Type (2), in NVDAOD the value's type (2), size (2), all little-endian; then the value. Up to the last byte.
    """
    head = 6 if headed else 4
    at = _HEADER_BYTES if headed else 0
    while at < len(data):
        start = at + head
        if start > len(data):
            raise bad("opaque data: a field breaks off")
        end = start + little_endian(data[start - 2 : start])
        if end > len(data):
            raise bad("opaque data: a field runs past the end")
        value_type = little_endian(data[at + 2 : at + 4]) if headed else 0
        yield little_endian(data[at : at + 2]), _Value(value_type, data[start:end])
        at = end


def _text(fields: _Fields, kind: int) -> str | None:
    """ASCII up to the first zero byte."""
    value = fields.get(kind)
    if value is None:
        return None
    text, zero, _ = value.data.partition(b"\x00")
    ascii_text = (text if zero else text[:_MAX_TEXT_BYTES]).decode("latin-1").strip(_SPACE)
    if ascii_text == "":
        return None
    return ascii_text if _TEXT.fullmatch(ascii_text) else _fail(kind)


def _number(fields: _Fields, kind: int) -> int:
    value = fields.get(kind)
    if value is None:
        return 0
    return _fail(kind) if len(value.data) > _MAX_NUMBER_BYTES else little_endian(value.data)


def _status(fields: _Fields, kind: int) -> bool | None:
    value = fields.get(kind)
    if value is None:
        return None
    return _STATUS[value.data] if value.data in _STATUS else _fail(kind)


def _pass_through(fields: _Fields, version: int) -> PassThrough | None:
    """Before version 1 there is no such flag, whatever stands there."""
    if version < 1 or Field.FEATURE_FLAG not in fields:
        return None
    flag = _number(fields, Field.FEATURE_FLAG)
    return _PASS_THROUGH[flag] if flag < len(_PASS_THROUGH) else _fail(Field.FEATURE_FLAG)


def _vbios_version(fields: _Fields) -> str | None:
    """
    GPUs write two little-endian words, of which the first four bytes and the fifth are the version; switches write the
    text.
    """
    value = fields.get(Field.VBIOS_VERSION)
    if value is None:
        return None
    if len(value.data) == 8:
        return (value.data[3::-1] + value.data[4:5]).hex(".").upper()
    version = (_text(fields, Field.VBIOS_VERSION) or "").upper()
    return version if _VERSION.fullmatch(version) else _fail(Field.VBIOS_VERSION)


def _ids(fields: _Fields, kind: int, count: int | None = None) -> tuple[str, ...] | None:
    """`count`: how many there must be; as many as fill the field by default."""
    value = fields.get(kind)
    if value is None:
        return None
    length, rest = (count, 0) if count is not None else divmod(len(value.data), _ID_BYTES)
    if rest != 0 or length * _ID_BYTES > len(value.data):
        return _fail(kind)
    return tuple(value.data[i * _ID_BYTES : (i + 1) * _ID_BYTES].hex() for i in range(length))


def _counts(fields: _Fields) -> tuple[int, ...] | None:
    value = fields.get(Field.MEASUREMENT_COUNTS)
    if value is None:
        return None
    if len(value.data) % 4 != 0:
        return _fail(Field.MEASUREMENT_COUNTS)
    return tuple(little_endian(value.data[at : at + 4]) for at in range(0, len(value.data), 4))


def _fail(kind: int) -> NoReturn:
    raise bad(f"opaque data: field {kind} is malformed")

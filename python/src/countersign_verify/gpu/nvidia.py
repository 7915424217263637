"""
What is NVIDIA's own: the pinned roots, the device that a chain is about, its RIMs' names, and the firmware id that its
report must repeat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ..common.checks import CheckFailure
from ..x509 import Certificate, DerError, DerValue, Tag, children, expect_tag, oid, parse_pem, read_one, sequence
from ..x509.der import at
from .spdm.opaque import OpaqueData

# What a device is, by the certificates that its maker issued to it and the opaque data that it signed.

Architecture = Literal["HOPPER", "BLACKWELL", "LS10"]
"""As NVIDIA's evidence files name them."""


@dataclass(frozen=True)
class DeviceIdentity:
    kind: Literal["gpu", "switch"]
    arch: Architecture
    chip: str
    """`GH100`, `GB100`, `LS10`."""
    model: str
    """The common name of the certificate above the leaf, as NVIDIA's verifiers report it: `GH100 A01 GSP BROM`."""
    ueid: str
    """The leaf's serial number in decimal: `ueid` in NVIDIA's tokens."""


_CHIP = re.compile(r"\b(?:GH1|GB[12]|LS_?1)[0-9]+\b", re.ASCII)


def identify(path: Sequence[Certificate]) -> DeviceIdentity | None:
    """None for a chip that is none of these. `path`: leaf first, as verify_chain returned it."""
    if len(path) < 2:
        return None
    leaf, above = path[:2]
    match = _CHIP.search(leaf.subject_common_name)
    if match is None:
        return None
    chip = match[0].replace("_", "", 1)
    arch: Architecture = "HOPPER" if chip.startswith("GH") else "BLACKWELL" if chip.startswith("GB") else "LS10"
    kind: Literal["gpu", "switch"] = "switch" if arch == "LS10" else "gpu"
    return DeviceIdentity(kind, arch, chip, above.subject_common_name, str(leaf.serial))


def device_of(path: Sequence[Certificate], arch: str) -> DeviceIdentity:
    """
    `path`: verified, leaf first. `arch`: as the evidence states it.
    @raises CheckFailure: chain_invalid where the leaf's key is not that of such a device.
    """
    if not path or not _is_device_key(path[0]):
        raise CheckFailure("chain_invalid", "the leaf certificate is not one of a device")
    identity = identify(path)
    if identity is None:
        raise CheckFailure("chain_invalid", "the certificates are of no GPU or switch that is known")
    if identity.arch != arch.upper():
        raise CheckFailure("chain_invalid", f"the evidence says {arch}, the certificates are of a {identity.chip}")
    return identity


# id-DMTF-eku-responder-auth (DSP0274): the one purpose that a device's key may be limited to.
_RESPONDER_AUTH = "1.3.6.1.4.1.412.274.3"


def _is_device_key(leaf: Certificate) -> bool:
    """NVIDIA's authorities certify OCSP responders too, so that a chain up to the root does not yet mean a device."""
    return not leaf.is_ca and (leaf.extended_key_usage is None or _RESPONDER_AUTH in leaf.extended_key_usage)


# The names under which NVIDIA's RIM service files its documents, put together from the signed opaque data.


@dataclass(frozen=True)
class RimIds:
    driver: str | None
    """None: a switch, which has no driver RIM."""
    vbios: str


def rim_ids(identity: DeviceIdentity, opaque: OpaqueData) -> RimIds | None:
    """The names of the RIMs that the signed opaque data leads to; None where it lacks a part of them."""
    version, driver = opaque.vbios_version, opaque.driver_version
    project, project_sku, chip_sku = opaque.project, opaque.project_sku, opaque.chip_sku
    if version is None:
        return None
    if identity.kind == "switch":
        # LS10 reports carry no project, and NVIDIA's verifiers take these.
        return RimIds(None, _bios_id("NV_SWITCH_BIOS", "5612", "0002", "890", version))
    if driver is None or project is None or project_sku is None or chip_sku is None:
        return None
    chip = identity.chip if opaque.chip is None else opaque.chip
    return RimIds(
        driver=_driver_id(identity.arch, chip, driver),
        vbios=_bios_id("NV_GPU_VBIOS", project, project_sku, chip_sku, version),
    )


def _driver_id(arch: Architecture, chip: str, version: str) -> str:
    """
    `NV_GPU_DRIVER_GH100_550.90.07` on Hopper; `NV_GPU_CC_DRIVER_…` with the chip that the report names since Blackwell.
    """
    return f"NV_GPU_DRIVER_GH100_{version}" if arch == "HOPPER" else f"NV_GPU_CC_DRIVER_{chip}_{version}"


def _bios_id(kind: str, project: str, project_sku: str, chip_sku: str, version: str) -> str:
    """`NV_GPU_VBIOS_1010_0200_882_96009F0001`; `version`: five pairs of hexadecimal digits, `96.00.9F.00.01`."""
    return f"{kind}_{project}_{project_sku}_{chip_sku}_{version.replace('.', '')}".upper()


# The firmware id in a leaf certificate: the digest of the firmware for which the boot ROM certified the signing key.

# Hopper and LS10: SEQUENCE { version, SubjectPublicKeyInfo, FWID }.
_COMPOSITE_DEVICE_ID = "2.23.133.5.4.1"
# Blackwell: DiceTcbInfo (TCG DICE Attestation Architecture §6.1.1), with its FWIDs in the member [6].
_TCB_INFO = "2.23.133.5.4.1.1"
_FWIDS = 0xA6


def fwid_of(leaf: Certificate) -> str | None:
    """The digest as lowercase hex; None where the certificate has no such extension. @raises DerError"""
    tcb_info = leaf.extensions.get(_TCB_INFO)
    if tcb_info is not None:
        fwids = next((one for one in sequence(read_one(tcb_info.value)) if one.tag == _FWIDS), None)
        if fwids is None:
            raise DerError("the TCB info names no firmware")
        # The first is the firmware's; Blackwell leaves the second zero.
        return _digest_of(at(children(fwids.content), 0))
    composite = leaf.extensions.get(_COMPOSITE_DEVICE_ID)
    return None if composite is None else _digest_of(at(sequence(read_one(composite.value)), 2))


def _digest_of(fwid: DerValue | None) -> str:
    """FWID ::= SEQUENCE { hashAlg OBJECT IDENTIFIER, digest OCTET STRING }"""
    parts = sequence(fwid)
    oid(at(parts, 0))
    return expect_tag(at(parts, 1), Tag.OCTET_STRING).content.hex()


# NVIDIA's two roots, pinned: no certificate that comes with evidence or reference values is ever a root.

DEVICE_ROOT_PEM = """\
-----BEGIN CERTIFICATE-----
MIICCzCCAZCgAwIBAgIQLTZwscoQBBHB/sDoKgZbVDAKBggqhkjOPQQDAzA1MSIw
IAYDVQQDDBlOVklESUEgRGV2aWNlIElkZW50aXR5IENBMQ8wDQYDVQQKDAZOVklE
SUEwIBcNMjExMTA1MDAwMDAwWhgPOTk5OTEyMzEyMzU5NTlaMDUxIjAgBgNVBAMM
GU5WSURJQSBEZXZpY2UgSWRlbnRpdHkgQ0ExDzANBgNVBAoMBk5WSURJQTB2MBAG
ByqGSM49AgEGBSuBBAAiA2IABA5MFKM7+KViZljbQSlgfky/RRnEQScW9NDZF8SX
gAW96r6u/Ve8ZggtcYpPi2BS4VFu6KfEIrhN6FcHG7WP05W+oM+hxj7nyA1r1jkB
2Ry70YfThX3Ba1zOryOP+MJ9vaNjMGEwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwHQYDVR0OBBYEFFeF/4PyY8xlfWi3Olv0jUrL+0lfMB8GA1UdIwQY
MBaAFFeF/4PyY8xlfWi3Olv0jUrL+0lfMAoGCCqGSM49BAMDA2kAMGYCMQCPeFM3
TASsKQVaT+8S0sO9u97PVGCpE9d/I42IT7k3UUOLSR/qvJynVOD1vQKVXf0CMQC+
EY55WYoDBvs2wPAH1Gw4LbcwUN8QCff8bFmV4ZxjCRr4WXTLFHBKjbfneGSBWwA=
-----END CERTIFICATE-----
"""
"""`NVIDIA Device Identity CA`, SHA-256 10:2B:F6:59:D5:41:96:14:…: above every GPU and switch."""

RIM_ROOT_PEM = """\
-----BEGIN CERTIFICATE-----
MIICKTCCAbCgAwIBAgIQRdrjoA5QN73fh1N17LXicDAKBggqhkjOPQQDAzBFMQsw
CQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxOVklESUEgQ29S
SU0gc2lnbmluZyBSb290IENBMCAXDTIzMDMxNjE1MzczNFoYDzIwNTMwMzA4MTUz
NzM0WjBFMQswCQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxO
VklESUEgQ29SSU0gc2lnbmluZyBSb290IENBMHYwEAYHKoZIzj0CAQYFK4EEACID
YgAEuECyi9vNM+Iw2lfUzyBldHAwaC1HF7TCgp12QcEyUTm3Tagxwr48d55+K2VI
lWYIDk7NlAIQdcV/Ff7euGLI+Qauj93HsSI4WX298PpW54RTgz9tC+Q684caR/BX
WEeZo2MwYTAdBgNVHQ4EFgQUpaXrOPK4ZDAk08DBskn594zeZjAwHwYDVR0jBBgw
FoAUpaXrOPK4ZDAk08DBskn594zeZjAwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwCgYIKoZIzj0EAwMDZwAwZAIwHGDyscDP6ihHqRvZlI3eqZ4YkvjE
1duaN84tAHRVgxVMvNrp5Tnom3idHYGW/dskAjATvjIx6VzHm/4e2GiZAyZEIUBD
OKPzp5ei/A0iUZpdvngenDwV8Qa/wGdiTmJ7Bp4=
-----END CERTIFICATE-----
"""
"""`NVIDIA CoRIM signing Root CA`, SHA-256 12:97:7B:51:15:AC:B0:38:…: above those who sign reference values."""


@cache
def device_roots() -> tuple[Certificate, ...]:
    return tuple(parse_pem(DEVICE_ROOT_PEM))


@cache
def rim_roots() -> tuple[Certificate, ...]:
    return tuple(parse_pem(RIM_ROOT_PEM))

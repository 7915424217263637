"""Collects and appraises with NVIDIA's SDK, `nv_attestation_sdk` in LOCAL mode, as published: GPUs, and switches beside them."""

import base64
import gc
import json
import urllib.request
from datetime import datetime
from hashlib import sha384

import ecdsa
from nv_attestation_sdk.attestation import Attestation, Devices, Environment
from nv_attestation_sdk.verifiers.nv_switch_verifier.utils.cert_chain_utils import extract_switch_cert_chain_base64
from verifier.config import GPU_ARCHITECTURE_MAP
from verifier.nvml import GpuCertificateChains

from failures import Failure


def rehearse():
    """Does while waiting what libraries do once per process. Nothing of NVIDIA's code runs here: it remembers."""
    datetime.strptime("20260101000000Z", "%Y%m%d%H%M%SZ")
    key = ecdsa.SigningKey.generate(curve=ecdsa.NIST384p, hashfunc=sha384)
    key.get_verifying_key().verify(key.sign(b"rehearsal"), b"rehearsal")
    urllib.request.install_opener(urllib.request.build_opener())
    gc.freeze()
    gc.disable()  # a process that ends with its first request


def attest(nonce, watch, with_switches):
    """Token and evidence over `nonce` (64 hex digits). Raises Failure unless NVIDIA's verifiers say true of every device."""
    client = Attestation("countersign")
    client.set_nonce(nonce)
    client.set_claims_version("3.0")
    token, evidence = appraise(client, Devices.GPU, carried_gpu, watch, with_switches)
    if not with_switches:
        return token, evidence
    # The SDK collects for the first of its verifiers alone, and gives what it collected to each: so one at a time.
    client.clear_verifiers()
    more, switches = appraise(client, Devices.SWITCH, carried_switch, watch, with_switches)
    return joined(token, more), evidence + switches


def appraise(client, kind, carried, watch, with_switches):
    client.add_verifier(kind, Environment.LOCAL, "", "")
    # "ppcie_mode" means: without any other verifier. On a machine behind protected PCIe NVIDIA's code then refuses.
    collected = client.get_evidence({"ppcie_mode": not with_switches})
    watch.raise_failure("collection")
    if not collected:
        raise Failure("collection_failed", f"NVIDIA's SDK collected no {kind.name} evidence and named no reason")
    evidence = [carried(device) for device in collected]

    result = client.attest(collected)
    # Before the result: with several devices NVIDIA's verifiers say true although checking a later one ended in an error.
    watch.raise_failure("appraisal")
    if result is not True:
        raise watch.refusal()
    return client.get_token(), evidence


def joined(token, more):
    """One token of both verifiers, in the shape that the SDK gives a client with two: `[["JWT", outer], {name: claims}]`."""
    (outer, claims), (_, others) = json.loads(token), json.loads(more)
    return json.dumps([outer, {**claims, **others}])


def carried_gpu(device):
    """One GPU's evidence for `attestation.evidence`; before the appraisal, which changes the chain's objects."""
    if opaque_data(device.get_attestation_report()).startswith(b"NVDAOD"):
        raise Failure("new_format", "this driver signs reports in a format newer than NVIDIA's Python SDK: use nvattest or native")
    return {
        "arch": GPU_ARCHITECTURE_MAP[device.get_gpu_architecture()].GPU_ARCH_NAME,
        "report": base64.b64encode(device.get_attestation_report()).decode("ascii"),
        "certificate_chain": GpuCertificateChains.extract_gpu_cert_chain_base64(device.get_attestation_cert_chain()),
    }


def opaque_data(report):
    """Of the SPDM response (DSP0274 1.1, MEASUREMENTS), after the request: record length at 5, then record, nonce, opaque data."""
    response = report[37:]
    record_bytes = int.from_bytes(response[5:8], "little")
    return response[8 + record_bytes + 32 + 2 :]


def carried_switch(device):
    if not device.attestation_report:  # NVIDIA's binding takes what NSCQ gave without looking at its return code
        raise Failure("collection_failed", "NSCQ gave no report of a switch")
    return {
        "arch": "LS10",
        "report": base64.b64encode(device.attestation_report).decode("ascii"),
        "certificate_chain": extract_switch_cert_chain_base64(device.attestation_cert_chain),
    }

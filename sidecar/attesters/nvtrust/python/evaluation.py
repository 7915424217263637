"""Collects and appraises evidence of GPUs and switches with NVIDIA's SDK as published, `nv_attestation_sdk` in LOCAL mode."""

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
    """Runs, while the worker waits, what libraries do once per process. NVIDIA's code does not run here: it keeps state."""
    datetime.strptime("20260101000000Z", "%Y%m%d%H%M%SZ")
    key = ecdsa.SigningKey.generate(curve=ecdsa.NIST384p, hashfunc=sha384)
    key.get_verifying_key().verify(key.sign(b"rehearsal"), b"rehearsal")
    urllib.request.install_opener(urllib.request.build_opener())
    gc.freeze()
    gc.disable()  # the process ends with its first request


def attest(nonce, watch, with_switches):
    """Token and evidence over `nonce` (64 hex digits). Raises Failure unless NVIDIA's verifiers return True for every device."""
    client = Attestation("countersign")
    client.set_nonce(nonce)
    client.set_claims_version("3.0")
    # NVIDIA's services are the sidecar's own here (services.ts), which asks with nonces, and keeps responses while they are valid.
    client.set_ocsp_nonce_disabled(True)
    token, evidence = appraise(client, Devices.GPU, gpu_evidence, watch, with_switches)
    if not with_switches:
        return token, evidence
    # The SDK collects only for the first of its verifiers, and gives that evidence to each: so they run one at a time.
    client.clear_verifiers()
    switch_token, switches = appraise(client, Devices.SWITCH, switch_evidence, watch, with_switches)
    return joined(token, switch_token), evidence + switches


def appraise(client, kind, evidence_of, watch, with_switches):
    client.add_verifier(kind, Environment.LOCAL, "", "")
    # "ppcie_mode" means that there is no other verifier. On a machine behind protected PCIe NVIDIA's code then refuses.
    collected = client.get_evidence({"ppcie_mode": not with_switches})
    watch.raise_failure("collection")
    if not collected:
        raise Failure("collection_failed", f"NVIDIA's SDK collected no {kind.name} evidence and named no reason")
    evidence = [evidence_of(device) for device in collected]

    result = client.attest(collected)
    # Before the result: with several devices NVIDIA's verifiers return True although the check of a later one ended in an error.
    watch.raise_failure("appraisal")
    if result is not True:
        raise watch.refusal()
    return client.get_token(), evidence


def joined(gpu_token, switch_token):
    """One token of both verifiers, in the shape that the SDK gives a client with two: `[["JWT", outer], {name: claims}]`."""
    (outer, claims), (_, others) = json.loads(gpu_token), json.loads(switch_token)
    return json.dumps([outer, {**claims, **others}])


def gpu_evidence(device):
    """One GPU's evidence for `attestation.evidence`. Called before the appraisal, which changes the chain's objects."""
    if opaque_data(device.get_attestation_report()).startswith(b"NVDAOD"):
        raise Failure("new_format", "this driver signs reports in a format newer than NVIDIA's Python SDK: use nvattest or native")
    return {
        "arch": GPU_ARCHITECTURE_MAP[device.get_gpu_architecture()].GPU_ARCH_NAME,
        "report": base64.b64encode(device.get_attestation_report()).decode("ascii"),
        "certificate_chain": GpuCertificateChains.extract_gpu_cert_chain_base64(device.get_attestation_cert_chain()),
    }


def opaque_data(report):
    """Read from the SPDM response (DSP0274 1.1, MEASUREMENTS) after the request: record length at 5, record, nonce, opaque data."""
    response = report[37:]
    record_bytes = int.from_bytes(response[5:8], "little")
    return response[8 + record_bytes + 32 + 2 :]


def switch_evidence(device):
    if not device.attestation_report:  # NVIDIA's binding ignores NSCQ's return code
        raise Failure("collection_failed", "NSCQ gave no report of a switch")
    return {
        "arch": "LS10",
        "report": base64.b64encode(device.attestation_report).decode("ascii"),
        "certificate_chain": extract_switch_cert_chain_base64(device.attestation_cert_chain),
    }

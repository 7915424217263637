"""Collects and appraises with NVIDIA's SDK, `nv_attestation_sdk` in LOCAL mode, as published."""

import base64
import gc
import urllib.request
from datetime import datetime
from hashlib import sha384

import ecdsa
from nv_attestation_sdk.attestation import Attestation, Devices, Environment
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


def attest(nonce, watch):
    """Token and evidence over `nonce` (64 hex digits). Raises Failure unless NVIDIA's verifier says true."""
    client = Attestation("countersign")
    client.set_nonce(nonce)
    client.set_claims_version("3.0")
    client.add_verifier(Devices.GPU, Environment.LOCAL, "", "")

    collected = client.get_evidence()
    watch.raise_failure("collection")
    if not collected:
        raise Failure("collection_failed", "NVIDIA's SDK collected no evidence and named no reason")
    evidence = [carried(device) for device in collected]

    result = client.attest(collected)
    # Before the result: with several GPUs NVIDIA's verifier says true although checking a later one ended in an error.
    watch.raise_failure("appraisal")
    if result is not True:
        raise watch.refusal()
    return client.get_token(), evidence


def carried(device):
    """One GPU's evidence for `attestation.evidence`; before the appraisal, which changes the chain's objects."""
    return {
        "arch": GPU_ARCHITECTURE_MAP[device.get_gpu_architecture()].GPU_ARCH_NAME,
        "report": base64.b64encode(device.get_attestation_report()).decode("ascii"),
        "certificate_chain": GpuCertificateChains.extract_gpu_cert_chain_base64(device.get_attestation_cert_chain()),
    }

"""Collects and appraises with NVIDIA's SDK: `nv_attestation_sdk` in LOCAL mode, its files and functions as published."""

from nv_attestation_sdk.attestation import Attestation, Devices, Environment
from verifier.config import GPU_ARCHITECTURE_MAP
from verifier.nvml import GpuCertificateChains
import base64

from failures import Failure


def attest(nonce, watch):
    """The token and each GPU's evidence over `nonce` (64 hex digits). Raises Failure unless NVIDIA's verifier says true."""
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
        raise Failure("refused", watch.refusal() or "NVIDIA's verifier did not say true and named no reason")
    return client.get_token(), evidence


def carried(device):
    """One GPU's evidence as `attestation.evidence` has it. Taken before the appraisal, which changes the chain's objects."""
    return {
        "arch": GPU_ARCHITECTURE_MAP[device.get_gpu_architecture()].GPU_ARCH_NAME,
        "report": base64.b64encode(device.get_attestation_report()).decode("ascii"),
        "certificate_chain": GpuCertificateChains.extract_gpu_cert_chain_base64(device.get_attestation_cert_chain()),
    }

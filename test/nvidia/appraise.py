"""Hands evidence to NVIDIA's unmodified local verifier, through NVIDIA's SDK, and prints what it said as one JSON line.

Standard input: {"arch": "HOPPER", "report": base64, "chain": PEM, "nonce": hex, "rounds": n, "others": [{arch, report, chain}]}.
One process appraises one report, and with it the others' of the same nonce: the SDK keeps state between calls. RIM and OCSP services come from NV_RIM_URL and NV_OCSP_URL, which NVIDIA reads.
What a GPU's driver would have told (driver and VBIOS version) is taken from the report, by NVIDIA's parser; asked for the
mode of the machine, which happens after a refusal, it says that development tools are off.
"""

import base64
import json
import logging
import os
import resource
import sys
import time
import warnings
from types import SimpleNamespace

warnings.simplefilter("ignore")
RESULT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # NVIDIA's verifier prints on standard output.

import pynvml

# There is no driver here. Left as it is, this call would end in a wait of 30 s, which never ends under faketime.
pynvml.nvmlSystemGetConfComputeState = lambda: SimpleNamespace(ccFeature=1, devToolsMode=0)

from nv_attestation_sdk.gpu import attest_gpu_local
from nv_attestation_sdk.utils import local_utils
from verifier import cc_admin
from verifier.attestation import AttestationReport
from verifier.config import GPU_ARCHITECTURE_MAP, event_log, info_log
from verifier.nvml.gpu_cert_chains import GpuCertificateChains
from verifier.nvml.test_handle import TestHandle
from verifier.utils import format_vbios_version

# The policy of NVIDIA's own example over the token, down to its verdicts.
POLICY = {
    "version": "4.0",
    "authorization-rules": {
        "type": "JWT",
        "overall-claims": {"x-nvidia-overall-att-result": True},
        "detached-claims": {"measres": "success"},
    },
}
ARCHITECTURES = {"HOPPER": 9, "BLACKWELL": 10}


class Said(logging.Handler):
    """Keeps what the verifier complained about."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(" ".join(record.getMessage().split()))


class Evidence:
    """What NvmlHandler is to the verifier, over stored evidence."""

    def __init__(self, given, settings):
        self.report = base64.b64decode(given["report"])
        self.arch = ARCHITECTURES[given["arch"]]
        self.chain = given["chain"].encode()
        opaque = AttestationReport(self.report, settings).get_response_message().get_opaque_data()
        self.driver = opaque.get_data("OPAQUE_FIELD_ID_DRIVER_VERSION").decode().rstrip("\0")
        self.vbios = format_vbios_version(opaque.get_data("OPAQUE_FIELD_ID_VBIOS_VERSION"))

    def get_gpu_architecture(self):
        return self.arch

    def get_uuid(self):
        return "GPU-00000000-0000-0000-0000-000000000000"

    def get_driver_version(self):
        return self.driver

    def get_vbios_version(self):
        return self.vbios

    def get_attestation_report(self):
        return self.report

    def get_attestation_cert_chain(self):
        # Anew each time: the verifier replaces its members while it works. The root becomes NVIDIA's own pinned one.
        return GpuCertificateChains(TestHandle(self.chain)).GpuAttestationCertificateChain


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    given = json.load(sys.stdin)
    said = Said()
    for log in (info_log, event_log):
        log.addHandler(said)
    settings = GPU_ARCHITECTURE_MAP[ARCHITECTURES[given["arch"]]]
    devices = [Evidence(one, GPU_ARCHITECTURE_MAP[ARCHITECTURES[one["arch"]]]) for one in (given, *given.get("others", []))]
    options = {"ocsp_nonce_disabled": True, "claims_version": "3.0"}
    seconds = []
    processor = []
    valid = True
    for _ in range(given.get("rounds", 1)):
        start, used = time.perf_counter(), processor_seconds()
        verdict, token = attest_gpu_local.attest(given["nonce"], devices, options)
        seconds.append(time.perf_counter() - start)
        processor.append(processor_seconds() - used)
        valid = valid and verdict is True
    answer = {
        "valid": valid,
        "policy": local_utils.validate_token(None, token, json.dumps(POLICY)) is True,
        "chain": settings.check_if_gpu_attestation_report_cert_chain_validated(),
        "signature": settings.check_if_attestation_report_signature_verified(),
        "measurements": settings.check_if_measurements_are_matching(),
        "said": said.lines,
        "seconds": seconds,
        "processor_seconds": processor,
    }
    RESULT.write(json.dumps(answer) + "\n")
    RESULT.flush()


main()

"""What NVML says before anything is collected: which GPUs there are, and in which mode they run."""

import ctypes

import pynvml
from verifier.nvml import NvmlSystemConfComputeSettings

from failures import Failure, nvml_failure

# nvmlDeviceArchitecture_t; the pinned pynvml is older than Blackwell's name.
ARCHITECTURES = {9: "HOPPER", 10: "BLACKWELL"}
PROTECTED_PCIE = 1


def devices():
    """Initialises NVML for this process and lists its GPUs."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        if count == 0:
            raise Failure("no_gpu", "NVML finds no GPU")
        return [describe(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
    except pynvml.NVMLError as error:
        raise nvml_failure(error) from error


def describe(handle):
    architecture = pynvml.nvmlDeviceGetArchitecture(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    if architecture not in ARCHITECTURES:
        raise Failure("unsupported_gpu", f"{name} is no GPU that NVIDIA's verifier can appraise")
    return {"arch": ARCHITECTURES[architecture], "model": name}


def refuse_unless_confidential():
    """Raises Failure unless confidential computing is on, with developer tools off."""
    try:
        state = pynvml.nvmlSystemGetConfComputeState()
        settings = NvmlSystemConfComputeSettings()
        pynvml.nvmlSystemGetConfComputeSettings(ctypes.byref(settings))
    except pynvml.NVMLError as error:
        raise nvml_failure(error) from error
    if settings.multiGpuMode == PROTECTED_PCIE:
        raise Failure("protected_pcie", "protected PCIe mode is on: its switches must be attested with the GPUs")
    if state.ccFeature == 0:
        raise Failure("cc_off", "confidential computing is off on this GPU: nothing it signs would mean anything")
    if state.devToolsMode != 0:
        raise Failure("devtools_on", "the GPU runs in developer tools mode, in which its memory can be read")

"""Reads from NVML, before a collection, which GPUs there are and in which mode they run."""

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


def behind_protected_pcie():
    """Whether the GPUs reach each other over switches, which must be attested with them."""
    settings = NvmlSystemConfComputeSettings()
    try:
        pynvml.nvmlSystemGetConfComputeSettings(ctypes.byref(settings))
    except pynvml.NVMLError:  # a driver without this function does not have the mode either
        return False
    return settings.multiGpuMode == PROTECTED_PCIE


def refuse_unless_confidential(switch_count):
    """Raises Failure unless confidential computing is on, in the mode of this worker's start, with developer tools off."""
    try:
        state = pynvml.nvmlSystemGetConfComputeState()
    except pynvml.NVMLError as error:
        raise nvml_failure(error) from error
    protected = behind_protected_pcie()
    if protected != (switch_count > 0):
        raise Failure("worker_died", "protected PCIe was switched since this worker started")
    # Protected PCIe is a mode of its own: NVIDIA's verifiers accept either mode.
    if state.ccFeature == 0 and not protected:
        raise Failure("cc_off", "confidential computing is off on this GPU: nothing it signs would mean anything")
    if state.devToolsMode != 0:
        raise Failure("devtools_on", "the GPU runs in developer tools mode, in which its memory can be read")

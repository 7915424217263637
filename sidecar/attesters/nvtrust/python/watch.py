"""Captures what NVIDIA's SDK logs: for a failure it returns False, or even True, and writes the reason only to the log."""

import logging
import re

import pynvml

from failures import NVML_REASONS, Failure, classify, nvml_failure

MISMATCH = "not matching with the"
SDK_LOGGERS = (
    "gpu-verifier-info",
    "gpu-verifier-event",
    "sdk-logger",
    "nv-attestation-sdk",
    "sdk-console",
    "sdk-file",
)

# The loggers that name mismatching measurements, at level INFO: the GPUs' verifier and the switches'.
MISMATCH_LOGGERS = ("gpu-verifier-info", "sdk-logger")


class Watch(logging.Handler):
    """Replaces the files and prints to which NVIDIA's code would log."""

    def __init__(self, on_nvml_error):
        super().__init__(logging.INFO)
        self.on_nvml_error = on_nvml_error
        self.errors = []
        self.lines = []
        self.mismatches = []
        self.mismatching = False
        logging.raiseExceptions = False  # some of NVIDIA's log calls do not format
        for name in SDK_LOGGERS:
            logger = logging.getLogger(name)
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()
            logger.setLevel(logging.INFO if name in MISMATCH_LOGGERS else logging.ERROR)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record):
        text = str(record.msg)
        if text.startswith("Failed to set GPU ready state"):  # NVIDIA's wrapper logs this for every NVML error
            self.on_nvml_error(swallowed_nvml_failure(text, record.args))
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else record.msg
            if not isinstance(error, BaseException):
                error = next((arg for arg in record.args or () if isinstance(arg, BaseException)), None)
            if isinstance(error, BaseException):
                self.errors.append(error)
            else:
                self.lines.append(text)
        elif MISMATCH in text and text.strip().startswith("The runtime measurements"):
            self.mismatching = True
        elif self.mismatching:
            index = re.match(r"\s*(\d+ \[\w+\])$", text)
            if index:
                self.mismatches.append(index.group(1))
            self.mismatching = index is not None

    def raise_failure(self, stage):
        if self.errors:
            raise classify(self.errors[-1], self.lines, stage)

    def refusal(self):
        """The reason why the verifier returned False without an error of its own."""
        if self.mismatches:
            indices = ", ".join(self.mismatches)
            return Failure("measurement_mismatch", f"measurements do not match the reference values at {indices}")
        return Failure("refused", self.lines[-1] if self.lines else "NVIDIA's verifier did not say true, nor why")


def swallowed_nvml_failure(text, args):
    """NVIDIA's wrapper translates two of NVML's errors; for the others it logs the text of `nvmlErrorString`."""
    if "root user" in text:
        return nvml_failure(pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION))
    if "reboot" in text:
        return nvml_failure(pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT))
    error_text = args[0] if isinstance(args, tuple) and args else args
    for code in NVML_REASONS:
        if str(pynvml.NVMLError(code)) == error_text:
            return nvml_failure(pynvml.NVMLError(code))
    return Failure("nvml_error", f"NVML: {error_text}")

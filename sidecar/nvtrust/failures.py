"""Names what went wrong. NVIDIA's SDK returns False, or even True, and writes the reason into its logs; here they are read.

The reasons are a closed list: `failure.ts` gives each its code and says whether asking again can help.
"""

import logging
import re
import urllib.error

MISMATCH = "not matching with the"
SDK_LOGGERS = ("gpu-verifier-info", "gpu-verifier-event", "sdk-logger", "nv-attestation-sdk", "sdk-console", "sdk-file")

# By the name of the exception, the first that stands in the chain of causes.
BY_EXCEPTION = {
    "NonceMismatchError": "nonce_mismatch",
    "SignatureVerificationError": "report_signature",
    "AttestationReportVerificationError": "report_signature",
    "DriverVersionMismatchError": "version_mismatch",
    "VBIOSVersionMismatchError": "version_mismatch",
    "RIMSignatureVerificationError": "rim_invalid",
    "RIMSchemaValidationError": "rim_invalid",
    "RIMCertChainVerificationError": "rim_invalid",
    "RIMVerificationFailureError": "rim_invalid",
    "InvalidCertificateError": "rim_invalid",
    "NoRIMMeasurementsError": "rim_invalid",
    "ElementNotFoundError": "rim_invalid",
    "InvalidMeasurementIndexError": "rim_invalid",
    "ParsingError": "report_invalid",
    "NoMeasurementBlockError": "report_invalid",
    "NoMeasurementsError": "report_invalid",
    "MeasurementSpecificationError": "report_invalid",
    "IncorrectNumberOfCertificatesError": "certificate_chain",
    "CertExtractionError": "certificate_chain",
    "CertChainVerificationFailureError": "certificate_chain",
    "RIMCertChainOCSPVerificationError": "ocsp_invalid",
}

# By what NVIDIA's verifier printed about a certificate's status; it raises the same error for all of these.
BY_LINE = (
    ("certificate status is UNKNOWN", "ocsp_unknown"),
    ("IS REVOKED FOR REASON", "ocsp_revoked"),
    ("ocsp response", "ocsp_invalid"),
    ("OCSP response", "ocsp_invalid"),
    ("The nonce in the OCSP", "ocsp_invalid"),
)

# NVML's return codes (nvmlReturn_t), by what an operator can do.
NVML_REASONS = {
    1: "gpu_busy", 10: "nvml_timeout", 19: "gpu_busy", 20: "gpu_busy", 21: "gpu_busy", 23: "gpu_busy", 27: "gpu_busy",
    4: "no_permission", 6: "no_gpu", 28: "no_gpu", 9: "no_driver", 12: "no_driver", 13: "no_driver", 18: "no_driver",
    3: "cc_off", 15: "gpu_lost", 16: "gpu_lost",
}  # fmt: skip


class Failure(Exception):
    """`reason` is one of the closed list; `message` is one line for a person, without any prompt's or answer's text."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason
        self.message = one_line(message)


def one_line(text):
    return re.sub(r"[^ -~]+", " ", str(text)).strip()[:400]


def nvml_failure(error):
    reason = NVML_REASONS.get(getattr(error, "value", None), "nvml_error")
    return Failure(reason, f"NVML: {error}")


class Watch(logging.Handler):
    """Hears what NVIDIA's code logs, in place of the files and prints to which it would go."""

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
            logger.setLevel(logging.INFO if name == "gpu-verifier-info" else logging.ERROR)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record):
        text = str(record.msg)
        if text.startswith("Failed to set GPU ready state"):  # what NVIDIA's wrapper says of every NVML error
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
        if self.mismatches:
            raise Failure("measurement_mismatch", f"measurements do not match the reference values at {', '.join(self.mismatches)}")
        return self.lines[-1] if self.lines else None


def swallowed_nvml_failure(text, args):
    """Two of NVML's errors are translated by NVIDIA's wrapper; of the others it gives the text of `nvmlErrorString`."""
    import pynvml

    if "root user" in text:
        return nvml_failure(pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION))
    if "reboot" in text:
        return nvml_failure(pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT))
    said = args[0] if isinstance(args, tuple) and args else args
    for code in NVML_REASONS:
        if str(pynvml.NVMLError(code)) == said:
            return nvml_failure(pynvml.NVMLError(code))
    return Failure("nvml_error", f"NVML: {said}")


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def classify(error, lines, stage):
    """The reason behind the error that ended NVIDIA's appraisal, or its collection."""
    chain = list(causes(error))
    names = [type(one).__name__ for one in chain]
    text = " / ".join(dict.fromkeys(one_line(one) for one in chain))
    http = next((one for one in chain if isinstance(one, urllib.error.HTTPError)), None)
    if "RIMFetchError" in names:
        if http is not None and http.code in (404, 410):
            return Failure("rim_not_found", text)
        return Failure("rim_refused" if http is not None and http.code in (401, 403) else "rim_unreachable", text)
    if any("OCSP request failed" in one_line(one) or "send_ocsp_request" in one_line(one) for one in chain):
        refused = http is not None and http.code in (401, 403)
        return Failure("ocsp_refused" if refused else "ocsp_unreachable", text)
    if "TimeoutError" in names and "nvml" in text.lower():
        return Failure("nvml_timeout", text)
    for fragment, reason in BY_LINE:
        line = next((line for line in lines if fragment in line), None)
        if line is not None:
            return Failure(reason, line)
    for name in names:
        if name in BY_EXCEPTION:
            return Failure(BY_EXCEPTION[name], text)
    return Failure("collection_failed" if stage == "collection" else "appraisal_failed", f"{names[0]}: {text}")

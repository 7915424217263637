"""Names the reason of a failure, from the exceptions and log lines of NVIDIA's code.

The reasons are a closed list: `failures.ts` gives each its code and says whether a retry can help.
"""

import re
import urllib.error

# By the name of the exception; the first in the chain of causes decides.
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

# By a line that NVIDIA's verifier logged, where its exception does not name the reason, or is a bug of its own.
BY_LINE = (
    ("firmware ID in the device certificate chain is not matching", "firmware_id"),
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
    """`reason` is one of the closed list; `message` is one line for an operator, without text of a prompt or response."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason
        self.message = one_line(message)


def one_line(text):
    return re.sub(r"[^ -~]+", " ", str(text)).strip()[:400]


def nvml_failure(error):
    reason = NVML_REASONS.get(getattr(error, "value", None), "nvml_error")
    return Failure(reason, f"NVML: {error}")


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
        if http is not None and http.code == 422:
            return Failure("ocsp_invalid", "the response about a certificate answers another request, or is not valid now")
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

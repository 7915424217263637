"""The words for each failure: one sentence for every code, and what to do next where there is something. TypeScript's words.ts says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ..common.checks import UNAVAILABLE, Check

SENTENCES: Final = {
    "not_json": "the file is no JSON and no event stream",
    "not_an_attestation": "the file has no attestation of the right form",
    "unsigned_member": "beside the attestation stands something that nobody signed",
    "event_not_expected": "the file is one event of a stream, which shows only a part of the answer",
    "too_large": "the file holds more than a verifier reads",
    "bundle_unavailable": "the bundle that the compact attestation names was not to be had",
    "bundle_mismatch": "the bundle is not the one that the attestation names",
    "bundle_malformed": "the bundle does not have the right form",
    "raw_hash_mismatch": "the request or the answer was changed after it was signed",
    "batch_malformed": "the batch does not have the right form",
    "batch_proof_invalid": "the answer is not in the batch that was signed",
    "raw_malformed": "the signed text is not a request with its answer",
    "endpoint_mismatch": "another endpoint was signed than yours",
    "request_mismatch": "another request was signed than yours",
    "response_mismatch": "another answer was signed than the one you hold",
    "stream_malformed": "the stream does not have the form of an answer",
    "stream_mismatch": "another stream was signed than the one you hold",
    "stream_not_foldable": "a client would show something else of this stream than what was signed",
    "token_malformed": "the token is not one of NVIDIA's verifiers",
    "token_nonce_mismatch": "a part of the token was made for another nonce",
    "token_result_false": "the verifier beside the GPU refused the GPU",
    "token_digest_mismatch": "a part of the token was swapped",
    "token_signature_invalid": "the signature of the token is wrong",
    "token_expired": "the token is for another time",
    "token_issuer_unknown": "nobody known issued the token",
    "token_key_unavailable": "the key of NVIDIA's service could not be fetched",
    "evidence_missing": "the attestation has no GPU's evidence",
    "evidence_malformed": "the evidence does not have the right form",
    "report_malformed": "the GPU's report does not have the right form",
    "report_nonce_mismatch": "the GPU signed another nonce",
    "report_signature_invalid": "the signature of the GPU's report is wrong",
    "chain_invalid": "the certificates do not form a valid chain",
    "certificate_expired": "a certificate is for another time",
    "untrusted_root": "the certificates do not end in a trusted root",
    "simulated_root_refused": "the device is simulated, and you named no simulated root",
    "fwid_mismatch": "the report and its certificate name different firmware",
    "revocation_unavailable": "nobody could say whether a certificate was revoked",
    "revocation_invalid": "the statement about revoked certificates is not current, or not its authority's",
    "certificate_revoked": "a certificate was revoked",
    "rim_unavailable": "NVIDIA's reference values could not be fetched",
    "rim_malformed": "the reference values do not have the right form",
    "rim_signature_invalid": "the signature of the reference values is wrong",
    "rim_chain_invalid": "the reference values were signed under no trusted root",
    "rim_signer_expired": "the certificate under the reference values is for another time",
    "rim_mismatch": "the reference values are for other firmware",
    "measurement_mismatch": "the machine runs something else than what is listed",
    "token_report_mismatch": "the token and the GPU's report contradict each other",
    "device_not_confidential": "the GPU is not in confidential mode",
    "debug_enabled": "the GPU or the guest can be debugged",
    "topology_mismatch": "the devices are not those of one machine in one mode",
    "too_old": "the attestation is older than you accept",
    "policy_refused": "the attestation is not what you demand",
    "device_not_accepted": "the device is not one that you accept",
    "cpu_missing": "you demand the evidence of a processor, and there is none",
    "cpu_malformed": "the processor's evidence does not have the right form",
    "cpu_unsupported": "the processor's evidence is of an unknown kind",
    "cpu_signature_invalid": "the signature of the processor's evidence is wrong",
    "cpu_identity_mismatch": "the certificate is for another processor or other firmware",
    "cpu_vtpm_invalid": "the processor and the virtual TPM do not belong together",
    "cpu_binding_mismatch": "the processor signed something else",
    "session_expired": "the session does not cover this time",
    "session_mismatch": "the answer belongs to another session",
    "cpu_devices_mismatch": "the session names other devices than those that signed",
    "answer_signature_invalid": "the session's key did not sign this answer",
    "cpu_policy_refused": "the processor or its guest is one that you do not accept",
    "collateral_unavailable": "Intel's collateral is not in the evidence",
    "collateral_invalid": "Intel's collateral is wrong",
    "collateral_expired": "Intel's collateral is out of date",
    "tcb_not_accepted": "the processor's firmware is too old for you",
    "event_log_mismatch": "the event log does not lead to the measurement",
    "software_mismatch": "the software is not on your list",
    "weights_missing": "no weights are proven",
    "weights_mismatch": "the machine was started with other weights than yours",
    "release_unavailable": "the release's bundle was not to be had",
    "release_too_large": "the release's bundle holds more than a verifier reads",
    "release_malformed": "the release's bundle does not have the right form",
    "release_unsupported": "the release's bundle is of a kind that is not accepted",
    "release_untrusted": "an authority or log that vouches for the release is not in the trusted root",
    "release_root_expired": "the trusted root ended an authority before the release was logged",
    "release_log_ended": "the log had ended when the release is said to be logged",
    "release_time_invalid": "nothing proves when the release was logged",
    "release_time_ahead": "the release was logged after the time of this check",
    "release_certificate_invalid": "the certificate that signed the release is not valid",
    "release_certificate_expired": "the release was not signed within its certificate's minutes",
    "release_sct_invalid": "the certificate that signed the release is not shown to be in a public log",
    "release_entry_mismatch": "the log's entry is about something else than the release",
    "release_proof_invalid": "the release is not shown to be in the log",
    "release_checkpoint_invalid": "the log did not sign the tree that the release is in",
    "release_signature_invalid": "the signature of the release is wrong",
    "release_issuer_mismatch": "the release was signed by an identity that is not of GitHub Actions",
    "release_repository_mismatch": "the release is of another repository",
    "release_id_mismatch": "the release is of another repository that took the name",
    "release_ref_mismatch": "the release was signed on a branch and not for a tag",
    "release_tag_mismatch": "the release is of another tag",
    "release_event_mismatch": "the release's workflow was not started by a pushed tag",
    "release_runner_mismatch": "the release was made on a machine that is not GitHub's",
    "release_workflow_mismatch": "the release was signed by another workflow",
    "release_identity_mismatch": "the release was signed under another name",
    "release_commit_mismatch": "the release is of another commit than its certificate",
    "release_statement_malformed": "the release's statement does not have the right form",
    "release_subject_duplicate": "the release's statement has two subjects of one name",
    "release_subject_mismatch": "what the release signed is not what it shows",
    "release_list_malformed": "the release's list of guests cannot be used",
    "release_status_unavailable": "nobody shows whether the release was withdrawn",
    "release_status_malformed": "the status of the release does not have the right form",
    "release_status_stale": "the status of the release is too old to show that it was not withdrawn",
    "release_withdrawn": "the release was withdrawn",
    "release_not_shown": "the answer does not come from a guest of the release",
}
"""Each follows its code: ``INVALID: raw_hash_mismatch: the request or the answer …``."""

SAVE: Final = "save the answer as it came, byte for byte (curl … > FILE)"
_AS_OF: Final = "to check it as of the time when you received it, give --at TIME"

STEPS: Final = {
    "not_json": SAVE,
    "not_an_attestation": 'ask with "tee": true, and save the whole answer',
    "unsigned_member": "give the answer as it came, with its attestation in it, or the attestation by itself",
    "event_not_expected": "give the whole stream, or say --event",
    "bundle_unavailable": "give the bundle with --bundle FILE (GET /v1/attestation/bundles/{sha256})",
    "request_mismatch": "give --request the body exactly as it was sent, with its tee; a proxy that writes JSON anew changes it",
    "response_mismatch": "give the answer as it came; of one that a client library wrote again, give the member attestation by itself",
    "stream_mismatch": "give the stream as it came (curl -sN … > FILE)",
    "token_key_unavailable": "NVIDIA's keys come over the network: leave out --offline, or check HTTPS_PROXY",
    "certificate_expired": _AS_OF,
    "token_expired": _AS_OF,
    "too_old": _AS_OF,
    "revocation_invalid": f"{_AS_OF} and what was kept then: --collateral DIR",
    "simulated_root_refused": "where you expect a simulated GPU, name its root: --allow-simulated ROOT (npm start writes run/simulated-root/root.pem)",
    "cpu_missing": "where the attestation names a session, give it with --session FILE (GET /v1/attestation/session)",
    "collateral_unavailable": "the service's operator has to add Intel's collateral (PCS_URL)",
    "weights_missing": "weights are proven at level measured: name the software with --reference FILE",
    "tcb_not_accepted": "to accept a status of Intel's, name it: --tcb STATUS",
    "release_unavailable": "name where it is: --gateway URL, --collateral DIR that 'countersign collateral FILE --release … --into DIR' filled, or leave out --offline",
    "release_status_unavailable": "name the tag that you accept (--release OWNER/REPO@TAG), or ask where a status is: --gateway URL",
    "release_status_stale": "name the tag that you accept: --release OWNER/REPO@TAG",
    "release_withdrawn": "ask the operator for answers of another release; --at TIME judges as of an earlier day",
    "release_not_shown": "the service shows no processor, or another guest: ask its operator which release runs",
}
"""What to do next, by the code of the first check that failed."""

_OF_PROCESSOR: Final = {
    (
        "cpu_revocation",
        "revocation_unavailable",
    ): "the service's operator has to add AMD's revocation list (KDS_URL); --without-revocation leaves this check out",
}
"""A processor's evidence brings its revocation list along, and nothing is fetched for it."""

_SERVICES: Final = {
    "revocation_unavailable": ("whether certificates were revoked", "--without-revocation"),
    "rim_unavailable": ("NVIDIA's reference values", "--without-reference-values"),
}
_OF_TIME: Final = {
    "certificate_expired",
    "revocation_invalid",
    "too_old",
    "token_expired",
    "policy_refused",
    "session_expired",
}
_YEAR_SECONDS: Final = 365 * 86_400


@dataclass(frozen=True)
class Circumstances:
    offline: bool
    claimed: datetime | None
    """The time that the attestation names."""
    now: datetime | None
    """This machine's time; None where the caller named another."""


def next_step(failed: Check, about: Circumstances) -> str | None:
    """:param failed: the check that failed first."""
    code = failed.code or ""
    claimed, now = about.claimed, about.now
    if code in _OF_TIME and claimed is not None and now is not None and _years_apart(claimed, now):
        return (
            f"the attestation is of {claimed:%Y-%m-%d} and this machine's clock says {now:%Y-%m-%d}: set the clock if it is wrong, "
            "or give --at TIME"
        )
    own = _OF_PROCESSOR.get((failed.name, code))
    if own is not None:
        return own
    if code not in _SERVICES:
        return STEPS.get(code)
    what, without = _SERVICES[code]
    if about.offline:
        return (
            f"to ask for {what}, leave out --offline, or give --collateral DIR that 'countersign collateral FILE --into DIR' "
            f"filled; {without} leaves this check out"
        )
    return f"{what} could not be asked for: check the network, or HTTPS_PROXY, and try again; {without} leaves this check out"


def _years_apart(one: datetime, other: datetime) -> bool:
    return abs((one - other).total_seconds()) > _YEAR_SECONDS


def refused_words(checks: Sequence[Check], about: str | None) -> str:
    """The last line of a report that is not valid. :param about: what the file is, where it is none that can be checked."""
    codes = [check.code or "" for check in checks if check.status == "fail"]
    if not codes:
        return "INVALID: no check could run"
    if all(code in UNAVAILABLE for code in codes):
        return f"INCOMPLETE: {codes[0]}: {SENTENCES[codes[0]]}; nothing was found wrong"
    return f"INVALID: {codes[0]}: {about or SENTENCES[codes[0]]}"

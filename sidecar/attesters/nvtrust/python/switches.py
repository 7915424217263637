"""Reads from NSCQ, through the binding in NVIDIA's SDK, which NVSwitches there are and whether they are locked."""

from failures import Failure

LS10 = 2


def open_nscq():
    """A session with the switches' driver."""
    from nv_attestation_sdk.verifiers.nv_switch_verifier.nscq import NSCQHandler

    try:
        return NSCQHandler()
    except AttributeError as error:  # NVIDIA's binding goes on without its library, and then lacks its functions
        raise Failure("no_nscq", "libnvidia-nscq is not there; install the package of the driver's branch") from error
    except Exception as error:
        raise nscq_failure(error) from error


def devices():
    """Lists the switches, of which protected PCIe needs at least one."""
    nscq = open_nscq()
    uuids = observed(nscq.get_all_switch_uuid)
    if not uuids:
        raise Failure("no_switch", "protected PCIe is on, and NSCQ finds no switch")
    architecture = observed(nscq.get_switch_architecture)
    if architecture != LS10:
        raise Failure("unsupported_switch", f"NVIDIA's verifier can appraise LS10 switches, not architecture {architecture}")
    return [{"arch": "LS10", "model": "NVSwitch LS10"} for _ in uuids]


def refuse_unless_locked():
    """Raises Failure unless every switch is in trusted NVLink mode, and locked in it."""
    nscq = open_nscq()
    for number, uuid in enumerate(observed(nscq.get_all_switch_uuid)):
        if not (observed(nscq.is_switch_tnvl_mode, uuid) and observed(nscq.is_switch_lock_mode, uuid)):
            raise Failure("switch_unlocked", f"switch {number} is not locked in trusted NVLink mode: restart the machine")


def observed(read, *args):
    """Checks the return code, which NVIDIA's binding returns with a callback's value and never checks itself."""
    try:
        value, code = read(*args)
    except Exception as error:
        raise nscq_failure(error) from error
    if code is not None and code < 0:
        raise Failure(reason_of(code), f"NSCQ: error {code}")
    return value


def reason_of(code):
    return {-6: "no_driver", -7: "no_driver", -8: "gpu_busy"}.get(code, "nscq_error")


def nscq_failure(error):
    return Failure(reason_of(getattr(error, "rc", None)), f"NSCQ: {type(error).__name__}: {error}")

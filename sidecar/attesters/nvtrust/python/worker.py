"""One worker of ATTESTER=nvtrust: loads NVIDIA's SDK, waits, attests over one nonce, ends.

NVIDIA's SDK is a process-wide singleton that keeps claims, device names and the last token from one request to the
next, so a process serves one request. It speaks JSON lines: the request comes on descriptor 3, the lines of the worker
go out on descriptor 4. Standard output is left to the SDK, which prints there; nobody reads it. The working directory
is private to this process.
"""

import json
import os
import sys
import threading
import warnings

from failures import Failure


def main():
    requests = os.fdopen(3, "rb")
    output = os.fdopen(4, "wb", buffering=0)
    for descriptor in (3, 4):
        os.set_inheritable(descriptor, False)
    finished = threading.Lock()

    def write_line(line, last=False):
        """Writes one line whole. After the last one the process ends, whatever its threads do."""
        if last:
            finished.acquire()
        data = memoryview(json.dumps(line).encode("ascii") + b"\n")
        try:
            while data:
                data = data[output.write(data) :]
        except BrokenPipeError:
            os._exit(1)
        if last:
            output.close()
            os._exit(0)

    def fail(failure):
        write_line({"type": "failed", "reason": failure.reason, "message": failure.message}, last=True)

    try:
        warnings.simplefilter("ignore")
        evaluation = load()
        # NVIDIA's thread wrapper swallows NVML's errors and then waits half a minute; the watch reports them at once.
        import gpu
        import switches
        from watch import Watch

        watch = Watch(on_nvml_error=fail)

        listed = gpu.devices()
        found = switches.devices() if gpu.behind_protected_pcie() else []
        write_line({"type": "ready", "devices": listed + found})
        line = requests.readline()
        if not line:
            os._exit(0)
        nonce = json.loads(line)["nonce"]
        threading.Thread(target=end_with_parent, args=(requests,), daemon=True).start()
        gpu.refuse_unless_confidential(switch_count=len(found))
        if found:
            switches.refuse_unless_locked()
        token, evidence = evaluation(nonce, watch, with_switches=bool(found))
        write_line({"type": "attested", "nonce": nonce, "token": token, "evidence": evidence}, last=True)
    except Failure as failure:
        fail(failure)
    except Exception as error:  # unforeseen: named only by its type, because its text may hold anything
        fail(Failure("unexpected", f"the worker failed: {type(error).__name__}"))


def load():
    """Imports the SDK, which takes a second or more: the reason why workers are started ahead of requests."""
    try:
        import evaluation

        evaluation.rehearse()
    except Exception as error:
        raise Failure("no_sdk", f"NVIDIA's SDK does not load: {type(error).__name__}: {error}") from error
    return evaluation.attest


def end_with_parent(requests):
    """The other end of descriptor 3 closes when the sidecar dies; a worker does not outlive it."""
    requests.read()
    os._exit(1)


if __name__ == "__main__":
    sys.stdin.close()
    main()

#!/bin/sh
# Sets the GPUs ready once the sidecar has made an attestation that verifies. GPUs in confidential mode attest and accept no work until
# then, anew after each start of the machine. systemd, compose and Kubernetes all start this; it needs root, with CAP_SYS_ADMIN in the
# machine's own user namespace: the driver takes `-srs` from nobody else.
#
#   ready.sh          once: exits 0 when the GPUs are ready, 1 when not
#   ready.sh --keep   goes on, and looks every READY_EVERY_S seconds whether they still are
#
#   READY_WITHOUT_ATTESTATION=1   where nothing has attested after READY_WAIT_S seconds, the GPUs are set ready all the same
#   READY_WAIT_S=120              how long the sidecar, and NVIDIA's services behind it, are waited for
#   READY_USER=10001:10000        who asks for the attestation and checks it, which needs no root; empty: the user who runs this
#
# The rest are the sidecar's own variables (docs/configuration.md): the check needs SIDECAR_SOCKET, ATTESTER, RIM_URL, OCSP_URL.
set -eu

code=$(cd "$(dirname "$0")/../.." && pwd)
user=${READY_USER:-}
wait_s=${READY_WAIT_S:-120}
every_s=${READY_EVERY_S:-60}
unattested=${READY_WITHOUT_ATTESTATION:-0}

say() { echo "ready: $*" >&2; }
usage() { say "$*"; exit 2; }
number() { case $2 in '' | *[!0-9]* | ??????*) usage "$1 must be a number of seconds, and is '$2'" ;; esac; }
number READY_WAIT_S "$wait_s"
number READY_EVERY_S "$every_s"
[ "$every_s" -gt 0 ] || usage 'READY_EVERY_S must be 1 or more'
case $unattested in '' | 0 | 1) ;; *) usage "READY_WITHOUT_ATTESTATION must be 1, 0 or empty, and is '$unattested'" ;; esac
case $user in '' | *?:?*) ;; *) usage "READY_USER must be USER:GROUP, and is '$user'" ;; esac
case $* in '') keep=0 ;; --keep) keep=1 ;; *) usage "--keep is the only argument, and these are '$*'" ;; esac

# A driver call that hangs must not hang this. `-k`: one that does not end when told to.
smi() { timeout -k 5 30 nvidia-smi conf-compute "$@"; }
are_ready() { smi -grs 2>/dev/null | grep -Eiq ':[[:space:]]*ready[[:space:]]*$'; }

# The doctor reads what NVIDIA's services answer: not as root.
as_user() {
  if [ -z "$user" ] || [ "$(id -u)" != 0 ]; then "$@"; else
    setpriv --reuid "${user%%:*}" --regid "${user#*:}" --clear-groups -- "$@"
  fi
}

# An attestation counts when the doctor made one itself and says that it verifies: not when it skipped that, nor for a simulated GPU.
attest() {
  report=$(as_user node "$code/sidecar/healthcheck.ts" 2>&1) || return 1
  report=$(as_user node "$code/sidecar/doctor/main.ts" 2>&1) || true
  if printf '%s\n' "$report" | grep -q '^ok    trial ' && ! printf '%s\n' "$report" | grep -q '^fail  session '; then
    printf '%s\n' "$report" | grep -E '^[a-z]+ +(trial|session) '
    return 0
  fi
  return 1
}

wait_for_attestation() {
  ends=$(($(date +%s) + wait_s))
  report=
  until attest; do
    [ "$(date +%s)" -lt "$ends" ] || return 1
    sleep 3
  done
}

set_ready() {
  if wait_for_attestation; then
    why='an attestation verifies'
  else
    [ -z "$report" ] || printf '%s\n' "$report" >&2
    say "no attestation that verifies within $wait_s s: is the sidecar up, and are NVIDIA's services (RIM, OCSP) in its reach?"
    if [ "$unattested" != 1 ]; then
      say 'the GPUs stay as they are and accept no work. READY_WITHOUT_ATTESTATION=1 would set them ready regardless'
      return 1
    fi
    say 'WARNING: READY_WITHOUT_ATTESTATION=1: the GPUs accept work UNATTESTED. Requests with tee are refused until the sidecar attests'
    why='UNATTESTED'
  fi
  smi -srs 1 >&2 || { say 'nvidia-smi conf-compute -srs 1 failed: is this root, with CAP_SYS_ADMIN?'; return 1; }
  are_ready || { say "nvidia-smi set the state, and says: $(smi -grs 2>&1 | tail -n 1)"; return 1; }
  say "the GPUs accept work: $why"
}

# As process 1 a shell that traps nothing does not end when told to.
[ $$ != 1 ] || trap 'exit 143' TERM INT

command -v nvidia-smi >/dev/null || { say 'there is no nvidia-smi: the driver is not installed, or a container lacks the capability utility'; exit 1; }
if are_ready; then say 'the GPUs accept work already'; else set_ready; fi
[ "$keep" = 1 ] || exit 0
# A reset of a GPU, or a driver that is loaded anew, takes the state away.
trap 'exit 0' TERM INT
while sleep "$every_s" & wait $!; do
  are_ready || { say 'the GPUs accept no work any more'; set_ready; }
done

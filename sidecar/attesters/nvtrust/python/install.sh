#!/bin/sh
# Makes the virtual environment in which nvtrust's workers run: sh sidecar/attesters/nvtrust/python/install.sh [FOLDER]
# FOLDER (default run/nvtrust-venv) is what NVTRUST_VENV names. PYTHON chooses the interpreter: 3.11, 3.12 or 3.13.
# Only the versions and hashes of requirements.txt are accepted, and no package's own build script is run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-run/nvtrust-venv}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

python=${PYTHON:-}
for candidate in python3.11 python3.12 python3.13 python3; do
  [ -n "$python" ] || python=$(command -v "$candidate" || true)
done
[ -n "$python" ] || fail 'no Python: install python3.11 with its venv module, or name one in PYTHON'
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "$python is no Python"
case $version in
  3.11 | 3.12 | 3.13) ;;
  # signxml 3.2 takes lxml below 6, which has no wheel for 3.14; what is pinned is not for 3.10 any more.
  *) fail "$python is Python $version; the pinned packages are for 3.11, 3.12 and 3.13. Install one of them with its venv module, and name it in PYTHON" ;;
esac

"$python" -m venv "$venv" || fail "$python cannot make a virtual environment in $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
  --requirement "$here/requirements.txt" || fail 'the pinned packages could not be installed (is PyPI reachable?)'
(cd "$venv" && bin/python -W ignore -c 'import nv_attestation_sdk.attestation' >/dev/null) ||
  fail "NVIDIA's SDK is installed but does not load"
rm -f "$venv/verifier.log" "$venv/attestation_sdk.log"
echo "installed NVIDIA's SDK into $venv"

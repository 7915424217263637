#!/bin/sh
# Makes the virtual environment in which nvtrust's workers run: sh sidecar/attesters/nvtrust/python/install.sh [FOLDER]
# FOLDER (default run/nvtrust-venv) is what NVTRUST_VENV names. PYTHON chooses the interpreter: 3.9 to 3.12, 3.11 preferred.
# Only the versions and hashes of requirements.txt are accepted, and no package's own build script is run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-run/nvtrust-venv}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

python=${PYTHON:-}
for candidate in python3.11 python3; do
  [ -n "$python" ] || python=$(command -v "$candidate" || true)
done
[ -n "$python" ] || fail 'no Python: install python3.11 with its venv module, or name one in PYTHON'
"$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))' ||
  fail "$python is not Python 3.9 to 3.12, for which the pinned packages are published"

"$python" -m venv "$venv" || fail "$python cannot make a virtual environment in $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
  --requirement "$here/requirements.txt" || fail 'the pinned packages could not be installed (is PyPI reachable?)'
(cd "$venv" && bin/python -W ignore -c 'import nv_attestation_sdk.attestation' >/dev/null) ||
  fail "NVIDIA's SDK is installed but does not load"
rm -f "$venv/verifier.log" "$venv/attestation_sdk.log"
echo "installed NVIDIA's SDK into $venv"

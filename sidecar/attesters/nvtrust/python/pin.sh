#!/bin/sh
# Makes requirements.txt again from requirements.in: every version and every hash that install.sh will accept.
# Needs pip-compile (pip-tools) under Python 3.11 and the network. Read the difference before you commit it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sdk=2.7.3

cd "$here"
pip-compile --quiet --generate-hashes --strip-extras --no-emit-find-links --no-emit-index-url --no-header \
  --output-file requirements.txt requirements.in

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for package in nv-local-gpu-verifier nv-attestation-sdk; do
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder/$package" "$package==$sdk"
  hash=$(python3 -m pip hash --algorithm sha256 "$folder/$package"/*.whl | grep -o 'sha256:[0-9a-f]*')
  printf '%s==%s \\\n    --hash=%s\n    # without its dependencies: see requirements.in\n' "$package" "$sdk" "$hash" >>requirements.txt
done

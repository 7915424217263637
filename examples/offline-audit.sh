#!/bin/sh
# Offline audit of a stored attestation, with the command line, in the project's folder: once online for what a check needs, from then on with no network.
#
#   sh examples/offline-audit.sh stored.json                                    # options of `npm run verify` may follow
#   sh examples/offline-audit.sh stored.json --allow-simulated run/simulated-root/root.pem          # the demo's simulated GPU
#
# The first run keeps reference values and OCSP answers in stored.json.collateral (remove it to fetch again); every run prints each check and the verdict, and
# exits 0 (valid), 1 (invalid), 2 (usage) or 3 (something that a check needs is missing). OCSP answers last for about a day: later, --at TIME says as of when.
set -eu
file=$1
shift
if [ -z "$(find "$file.collateral" -type f 2> /dev/null)" ]; then # none yet, or the network was away
  npm run -s countersign -- collateral "$file" --into "$file.collateral" "$@" > /dev/null || [ $? -ne 2 ] # the verdict comes below
fi
npm run -s verify -- "$file" --verbose --offline --collateral "$file.collateral" "$@"

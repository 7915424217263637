#!/bin/sh
# An nvidia-smi that knows the ready state alone. It prints as drivers 550 to 595 do, and keeps the state as a file in $SMI, where
# `refuse` makes it fail as for one who is not root, and `deaf` has it take the state and not keep it.
smi=${SMI:-/run/gpu}
echo "$*" >>"$smi/calls"
case "$*" in
  'conf-compute -grs')
    [ -e "$smi/ready" ] && state=ready || state=not-ready
    echo "Confidential Compute GPUs Ready state: $state"
    ;;
  'conf-compute -srs 1')
    [ ! -e "$smi/refuse" ] || { echo 'Insufficient Permissions'; exit 4; }
    [ -e "$smi/deaf" ] || touch "$smi/ready"
    ;;
  *) exit 9 ;;
esac

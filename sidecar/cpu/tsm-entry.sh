#!/bin/sh
# Makes the configfs-tsm entry through which the sidecar gets reports, and gives its files to a group. Run as root, once a boot.
# The kernel checks only file modes: a user who may write `inblob` and read `outblob` can have the processor sign 64 bytes.
#
#   tsm-entry.sh GROUP
set -eu
entry=${TSM_ENTRY:-/sys/kernel/config/tsm/report/countersign}
if [ ! -d "$entry" ] && ! mkdir "$entry"; then
  echo "tsm-entry: cannot make $entry: is this a confidential VM, and is its driver (sev-guest, tdx-guest) loaded?" >&2
  exit 1
fi
cd "$entry"
# There is no auxblob on TDX.
for file in inblob outblob auxblob generation provider; do
  [ ! -e "$file" ] || chgrp "$1" "$file"
done
chmod 0220 inblob
for file in outblob auxblob generation provider; do
  [ ! -e "$file" ] || chmod 0440 "$file"
done
echo "tsm-entry: $entry asks $(cat provider)"

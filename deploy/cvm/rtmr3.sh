#!/bin/busybox sh
# Extends TDX's register RTMR3 with the launch file's digest, as one event of type 0x08000001 named countersign-launch, and writes that event
# in the JSON form of logs that verifiers replay. Run by `init` before anything else could extend the register.
#
#   rtmr3.sh REGISTER SHA256 LOG      REGISTER: /sys/class/misc/tdx_guest/measurements/rtmr3:sha384, which extends by what is written
set -e
bb=/bin/busybox register=$1 launch=$2 log=$3
# The type in four bytes, then the name and the payload, each behind a colon.
set -- $({ printf '\001\000\000\010:countersign-launch:' && printf "$(echo "$launch" | $bb sed 's/../\\x&/g')"; } | sha384sum)
[ ${#1} = 96 ]
printf "$(echo "$1" | $bb sed 's/../\\x&/g')" >/etc/event
$bb cat /etc/event >"$register"
echo "[{\"imr\":3,\"event_type\":134217729,\"digest\":\"$1\",\"event\":\"countersign-launch\",\"event_payload\":\"$launch\"}]" >"$log"

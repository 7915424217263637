#!/bin/bash
# Computes what SEV-SNP measures of an image, and prints the list that relying parties give to `--reference`. With sev-snp-measure 0.0.13
# (PyPI), which must be on the PATH. The measurement depends on the number of virtual CPUs and their type: one value for each.
#
#   reference.sh OUT FIRMWARE LAUNCH_SHA256…     OUT of build.sh, OVMF.fd of firmware.sh, one launch file or more
#
#   VCPUS, TYPES         "2 4 8 16 32 64", "EPYC-v4"
#   LAUNCH_IN            host_data; measurement where the command line names the launch file
set -euo pipefail
out=${1:?reference.sh OUT FIRMWARE LAUNCH_SHA256…} firmware=${2:?FIRMWARE} first=${3:?LAUNCH_SHA256}
shift 3
case ${LAUNCH_IN:-host_data} in
  host_data) grep -q 'countersign\.launch=' "$out/cmdline" && { echo 'reference.sh: this image has its launch file in the command line: LAUNCH_IN=measurement' >&2; exit 1; } ;;
  measurement)
    # The guest compares nothing else then: the statement's word counts because this very digest was measured.
    [ $# = 0 ] && grep -q "countersign\.launch=$first\b" "$out/cmdline" ||
      { echo 'reference.sh: LAUNCH_IN=measurement is for one launch file, the one in the command line of the image' >&2; exit 1; } ;;
  *) echo 'reference.sh: LAUNCH_IN is host_data or measurement' >&2; exit 1 ;;
esac
measurements=
for type in ${TYPES:-EPYC-v4}; do
  for vcpus in ${VCPUS:-2 4 8 16 32 64}; do
    one=$(sev-snp-measure --mode snp --vcpus "$vcpus" --vcpu-type "$type" --ovmf "$firmware" \
      --kernel "$out/vmlinuz" --initrd "$out/initrd" --append "$(cat "$out/cmdline")")
    measurements+="${measurements:+,}\"$one\""
  done
done
launches="\"$first\""
for launch in "$@"; do launches+=",\"$launch\""; done
printf '{"version":1,"cpu":[{"type":"SEV_SNP","measurement":[%s],"launch_in":"%s"}],"launch":[%s]}\n' \
  "$measurements" "${LAUNCH_IN:-host_data}" "$launches"

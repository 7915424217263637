#!/bin/bash
# Builds OVMF for SEV-SNP (edk2's AmdSev platform) from Debian's sources: the firmware into which QEMU puts the hashes of kernel, initrd and
# command line, so that they are part of the guest's measurement. It is built without GRUB, and halts at programs of the host of fw_cfg's folder etc/boot/: a kernel that is measured, or nothing. Debian's
# own packages have no such build. As root, about 5 minutes: apt install gcc g++ make nasm acpica-tools uuid-dev python3 curl xz-utils patch
#
#   firmware.sh OUT      OUT/OVMF.fd
#
#   MIRROR, VERSION      http://deb.debian.org/debian, 2025.02-8+deb13u1
set -euo pipefail
out=$(realpath -m "${1:?firmware.sh OUT}")
version=${VERSION:-2025.02-8+deb13u1}
pool=${MIRROR:-http://deb.debian.org/debian}/pool/main/e/edk2
orig=edk2_${version%%-*}.orig.tar.xz debian=edk2_$version.debian.tar.xz
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} LC_ALL=C TZ=UTC
# The path of the sources is part of some modules: always the same one.
work=/tmp/countersign-firmware
mkdir "$work" || { echo "firmware.sh: $work is there: another build runs, or was left behind" >&2; exit 1; }
trap 'rm -rf "$work"' EXIT
cd "$work"
for file in "$orig" "$debian"; do curl -fsSO "$pool/$file"; done
sha256sum -c --quiet <<EOF
b63b6053d6d89c74d9291f9e96fde1584be99e6fb9c169ba9511505129d6b049  $orig
e2a7f6fc58640818416a028d6d5e9dfc255697a7cdc60c14566c236df6bd9b08  $debian
EOF
mkdir edk2
tar -xf "$orig" -C edk2 --strip-components=1
tar -xf "$debian" -C edk2
cd edk2
grep -v '^\(#\|$\)' debian/patches/series | while read -r change; do patch -p1 -s <"debian/patches/$change"; done
sed -i '/Grub\/Grub.inf/d; /PREBUILD/d' OvmfPkg/AmdSev/AmdSevX64.dsc OvmfPkg/AmdSev/AmdSevX64.fdf
# QEMU puts no hash of the files in fw_cfg's folder etc/boot/ into the guest's measured memory, and the firmware would start one of them, `shim`,
# before the kernel: the host's operator would have a program of his own in the guest. Now they are verified like the kernel, which fails.
loader=OvmfPkg/QemuKernelLoaderFsDxe/QemuKernelLoaderFsDxe.c
sed -i '/^QemuKernelVerifyBlob (/,/FindKernelBlob/s/return EFI_SUCCESS;/DEBUG ((DEBUG_ERROR, "a file that is not measured\\n"));/' "$loader"
[ "$(grep -c 'a file that is not measured' "$loader")" = 1 ] || { echo "firmware.sh: $loader is another than was expected" >&2; exit 1; }
make -C BaseTools -j"$(nproc)" >"$work/tools.log" 2>&1 || { tail -20 "$work/tools.log" >&2; exit 1; }
# It reads the arguments of the script that sources it.
set --
set +u
. ./edksetup.sh >/dev/null
set -u
build -n "$(nproc)" -a X64 -t GCC5 -p OvmfPkg/AmdSev/AmdSevX64.dsc -b RELEASE >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; exit 1; }
mkdir -p "$out"
cp Build/AmdSev/RELEASE_GCC5/FV/OVMF.fd "$out/OVMF.fd"
(cd "$out" && sha256sum OVMF.fd)

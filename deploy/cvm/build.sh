#!/bin/bash
# Builds an image for confidential VMs: kernel, first file system and a root that dm-verity guards, with no way to log in. The same
# packages give the same bytes. As root, on Debian 12 or newer: apt install mmdebstrap squashfs-tools cryptsetup-bin cpio xz-utils
#
#   build.sh OUT         OUT/vmlinuz, initrd, root.squashfs, root.verity, cmdline
#
#   PACKAGES             more Debian packages, with spaces between them
#   FILES                a folder whose contents are laid over the root, such as NVIDIA's driver and container toolkit
#   MIRROR               http://deb.debian.org/debian; a snapshot.debian.org address for the bytes of another day
#   SUITE, KERNEL        trixie, linux-image-cloud-amd64; linux-image-cloud-amd64/trixie-backports for TDX, whose registers 6.12 does not show
#   COMMAND_LINE         more for the kernel's command line; countersign.launch=SHA256 makes an image of one launch file
#   AML                  0; 1 lets the kernel run the code in the host's ACPI tables, which Azure's guests and perhaps a GPU's driver need
#   SOURCE_DATE_EPOCH    the time that all files bear
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?build.sh OUT}")
mirror=${MIRROR:-http://deb.debian.org/debian}
suite=${SUITE:-trixie}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} LC_ALL=C TZ=UTC
# Without acpi_init Linux loads no AML, the code in ACPI tables, which the host writes. It then counts buses itself, starts cards behind root
# ports only if it leaves their hotplug alone, and neither resets the machine nor notes errors where those tables say.
no_aml='initcall_blacklist=acpi_init pci=lastbus=255 pcie_ports=compat reboot=t erst_disable bert_disable hest_disable'
case ${AML:-0} in 0) ;; 1) no_aml= ;; *) echo 'build.sh: AML is 0 or 1' >&2; exit 1 ;; esac
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# The root. It is never written: what changes while it runs is in memory, which is encrypted.
base=systemd,systemd-sysv,systemd-resolved,kmod,ca-certificates,iproute2,iptables,docker.io,docker-cli,docker-compose
base+=,cryptsetup-bin,busybox-static,${KERNEL:-linux-image-cloud-amd64}${PACKAGES:+,${PACKAGES// /,}}
# A kernel of another suite, PACKAGE/SUITE, comes with that suite's sources.
sources=("$mirror")
case ${KERNEL:-} in */*) sources=("deb $mirror $suite main" "deb $mirror ${KERNEL#*/} main") ;; esac
mmdebstrap --variant=minbase --include="$base" \
  --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="$here/harden.sh \"\$1\" $here ${FILES:-}" \
  "$suite" "$work/root.tar" "${sources[@]}"
mkdir "$work/root"
tar -xf "$work/root.tar" -C "$work/root"
rm "$work/root.tar"

# The first file system: busybox, dm-verity's program, the modules that are needed, and `init`.
first=$work/first
mkdir -p "$first"/{bin,dev,proc,sys,run,sysroot,etc}
cp "$work/root/usr/bin/busybox" "$first/bin/busybox"
cp "$here/init" "$here/rtmr3.sh" "$first/"
copy() { # A program and the libraries that it needs, from the root.
  install -D "$work/root$1" "$first$1"
  chroot "$work/root" /usr/bin/ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
    install -D "$work/root$library" "$first$library"
  done
}
copy /usr/sbin/veritysetup
copy /usr/bin/sha384sum
kernel=$(ls "$work/root/usr/lib/modules")
modules=(virtio_blk dm-verity squashfs erofs overlay sev-guest tdx-guest configfs)
: >"$first/etc/modules"
for module in "${modules[@]}"; do
  chroot "$work/root" /usr/sbin/modprobe -S "$kernel" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p' |
    while read -r file; do
      name=$(basename "$file" .xz)
      grep -qxF "$name" "$first/etc/modules" && continue
      echo "$name" >>"$first/etc/modules"
      mkdir -p "$first/modules"
      case $file in *.xz) xz -dc "$work/root$file" ;; *) cat "$work/root$file" ;; esac >"$first/modules/$name"
    done
done
# Newer packages have it beside the modules.
cp "$work/root/boot/vmlinuz-$kernel" "$out/vmlinuz" 2>/dev/null || cp "$work/root/usr/lib/modules/$kernel/vmlinuz" "$out/vmlinuz"
rm -rf "$work/root/boot" "$work/root/initrd.img"* "$work/root/vmlinuz"*
find "$first" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
(cd "$first" && find . -print0 | sort -z | cpio --null --create --format=newc --reproducible --owner=0:0 --quiet) | gzip -9n >"$out/initrd"

rm -f "$out/root.squashfs" "$out/root.verity"
mksquashfs "$work/root" "$out/root.squashfs" -comp zstd -no-xattrs -noappend -quiet -no-progress >/dev/null
# The salt is no secret: it is fixed so that the same root has the same hash.
veritysetup format --salt "$(printf '%064d' 0)" --uuid 00000000-0000-0000-0000-000000000000 \
  "$out/root.squashfs" "$out/root.verity" | sed -n 's/^Root hash:[[:space:]]*//p' >"$work/hash"
# systemd takes credentials, units among them, from the host unless it knows the guest as confidential, which depends on a module.
echo "console=ttyS0 panic=-1 systemd.import_credentials=no${no_aml:+ $no_aml} roothash=$(cat "$work/hash")${COMMAND_LINE:+ $COMMAND_LINE}" >"$out/cmdline"
(cd "$out" && sha256sum vmlinuz initrd root.squashfs root.verity cmdline)

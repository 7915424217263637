#!/bin/bash
# Run by build.sh on the root before it is packed: takes out every way to log in, adds our units, and what differs from build to build.
#
#   harden.sh ROOT HERE [FILES]
set -euo pipefail
root=$1 here=$2 files=${3:-}
[ -z "$files" ] || cp -a "$files/." "$root/"
install -D -m 644 "$here/countersign.service" "$root/etc/systemd/system/countersign.service"
install -D -m 644 "$here/docker.conf" "$root/etc/systemd/system/docker.service.d/countersign.conf"
install -D -m 644 "$here/network.network" "$root/etc/systemd/network/80-countersign.network"
in_root() { chroot "$root" "$@"; }

# No password, no shell, no program that asks for either.
in_root usermod --password '!' --shell /usr/sbin/nologin root
for unit in getty@.service serial-getty@.service console-getty.service container-getty@.service debug-shell.service emergency.service \
  rescue.service autovt@.service getty.target systemd-firstboot.service apt-daily.timer apt-daily-upgrade.timer; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root"/usr/sbin/{agetty,getty,sulogin,sshd} "$root"/usr/bin/{login,su,newgrp,ssh,apt,apt-get,dpkg}
in_root systemctl enable --quiet systemd-networkd systemd-resolved docker countersign
in_root systemctl set-default --quiet multi-user.target
ln -sf /run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
echo countersign >"$root/etc/hostname"

# What differs from build to build, or says when it was.
: >"$root/etc/machine-id"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/var/log/* "$root"/var/lib/dbus/machine-id "$root"/etc/ssh \
  "$root"/var/lib/systemd/{random-seed,catalog} "$root"/etc/{passwd-,group-,shadow-,gshadow-} "$root"/tmp/* "$root"/root/.*history

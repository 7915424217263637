#!/bin/sh
# A machine of its own: systemd as process 1 in fresh namespaces, with our units alone. Everything ends with the process that runs this.
# boot.sh WORK TREE NODE: WORK holds sidecar.env, gateway.env, api-keys and drop-ins/; logs are written into it.
set -eu
work=$1 tree=$2 node=$3
if [ "${4:-}" != inside ]; then
  # Cgroups of its own, below ours: systemd takes those it starts in for the root of the machine. cpuset, which it leaves alone, may refuse.
  while IFS=: read -r _ controllers path; do
    name=${controllers#name=}
    folder=/sys/fs/cgroup/${name:-unified}$path
    [ -d "$folder" ] && mkdir -p "$folder/countersign-test" && echo $$ 2>/dev/null >"$folder/countersign-test/cgroup.procs" || true
  done </proc/self/cgroup
  exec unshare --mount --pid --fork --cgroup --ipc --uts --kill-child --mount-proc sh "$0" "$work" "$tree" "$node" inside
fi

mount --make-rprivate /
# Nothing of this machine is written: /etc is a copy, /run, /opt, /var/lib and /var/log are empty.
mkdir -p "$work/etc"
mount -t tmpfs tmpfs "$work/etc"
cp -a /etc/. "$work/etc/"
mount --bind "$work/etc" /etc
for folder in /run /opt /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd

# What docs/operate.md has an operator do.
mkdir -p /opt/countersign /etc/countersign
mount --bind -o ro "$tree" /opt/countersign
mount --bind "$node" /usr/bin/node
units=$tree/deploy/systemd
systemd-sysusers "$units/countersign.sysusers.conf"
systemd-tmpfiles --create "$units/countersign.tmpfiles.conf"
cp "$work"/*.env "$work/api-keys" /etc/countersign/
chmod 600 /etc/countersign/*
chmod 400 /etc/countersign/api-keys
chown countersign-gateway /etc/countersign/api-keys
mkdir /run/gpu /run/units
cp "$tree/test/deploy/nvidia-smi.sh" /run/gpu/nvidia-smi
cp "$units"/*.service "$units"/*.socket /run/units
cp -r "$work"/drop-ins/. /run/units
# NVIDIA's units, which note whether the GPU was held when they opened it.
cat >/run/units/nvidia-persistenced.service <<UNIT
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'test ! -e /run/gpu/no-driver && sleep 1 && touch /run/gpu/held'
UNIT
for unit in nvidia-cdi-refresh nvidia-dcgm; do
  printf '[Service]\nType=oneshot\nExecStart=/bin/sh -c "test -e /run/gpu/held && touch /run/gpu/%s"\n' $unit >/run/units/$unit.service
  mkdir /run/units/$unit.service.d
  cp "$units/after-persistenced.conf" /run/units/$unit.service.d
done

for target in sysinit basic network network-online sockets shutdown; do
  printf '[Unit]\nDefaultDependencies=no\n' >/run/units/$target.target
done
printf '[Unit]\nWants=countersign-gateway.service countersign-sidecar.socket\n' >/run/units/test.target
exec env -i PATH="$PATH" container=countersign SYSTEMD_UNIT_PATH=/run/units \
  /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=no

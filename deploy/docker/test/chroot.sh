#!/bin/sh
# Does by hand what the Dockerfile does, where no Docker engine is, and tries it:
#   sh deploy/docker/test/chroot.sh ROOT     as root, after ./task build
# ROOT is made by debootstrap unless it is there. What an engine adds (its seccomp
# profile, its cgroups and a network of its own) is not tried here.
set -eu
root=${1:?usage: chroot.sh ROOT}
here=$(cd "$(dirname -- "$0")/../../.." && pwd)
[ -d "$root/usr" ] || debootstrap --variant=minbase bookworm "$root"

cp "$here/deploy/docker/setup.sh" "$root/tmp/setup.sh"
grep -q '^temper:' "$root/etc/passwd" || chroot "$root" sh /tmp/setup.sh
install "$here/bin/temper" "$here/bin/temporald" "$here/bin/s3d" "$root/usr/local/bin/"
mkdir -p "$root/usr/local/share/temper"
cp -r "$here/configs" "$root/usr/local/share/temper/"

mounted=
trap 'for m in $mounted; do umount "$root$m"; done' EXIT
for m in /proc /dev; do
  mount --bind "$m" "$root$m"
  mounted="$m $mounted"
done
# run COMMAND...: as the image's user, in its folder, with its environment.
run() {
  chroot --userspec=temper:temper "$root" /usr/bin/env -i HOME=/home/temper PATH=/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 TEMPER_HOME=/data sh -c 'cd /data && exec "$@"' sh tini -s -- "$@"
}
ports="--temporal 127.0.0.1:27233 --ui 127.0.0.1:28233 --sandbox 127.0.0.1:28765"
echo "== user: $(run id -un) $(run id -u)"
run temper --version
run temper doctor $ports
rm -rf "$root/data/store" "$root/data/temporal.db"*
run temper up $ports --run /usr/local/share/temper/configs/ci.yaml --run-id image --exit
run temper run export image /data/exported && run temper model inspect /data/exported
rm -rf "$root/data/exported"

#!/bin/sh
# fetch-kernel.sh ROOT, run by mmdebstrap: unpack kernel and boot loader, do not install them; the initrd is ours, another takes minutes.
set -eu
cd "$1/var/cache/apt"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" # the machine's own apt, so that its proxies and hosts count
eval "$(apt-config shell arch APT::Architecture)"
name=$(apt-cache depends "linux-image-$arch" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
apt-get -qq -o APT::Sandbox::User=root download "$name" systemd-boot-efi
for each in linux-image-*.deb systemd-boot-efi_*.deb; do
    dpkg-deb --fsys-tarfile "$each" | tar -C "$1" -x --keep-directory-symlink # /lib is a link, and stays one
    rm "$each"
done
PATH=$PATH:/usr/sbin:/sbin depmod -b "$1" "$(ls "$1/lib/modules")"

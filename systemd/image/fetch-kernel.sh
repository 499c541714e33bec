#!/bin/sh
# fetch-kernel.sh ROOT, run by mmdebstrap: unpack the kernel, do not install it; its initrd is ours, another takes minutes.
set -eu
cd "$1/var/cache/apt"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" # the machine's own apt, so that its proxies and hosts count
name=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
apt-get -qq -o APT::Sandbox::User=root download "$name"
dpkg-deb --fsys-tarfile linux-image-*.deb | tar -C "$1" -x --keep-directory-symlink # /lib is a link, and stays one
rm linux-image-*.deb
PATH=$PATH:/usr/sbin:/sbin depmod -b "$1" "$(ls "$1/lib/modules")"

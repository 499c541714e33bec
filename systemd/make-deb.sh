#!/bin/sh
# make-deb.sh WORK PYTHON: build WORK/rocketbox_VERSION_ARCH.deb; the product lies in slot a as if it had been installed there.
set -eu
work=$1 python=$2
here=$(dirname "$(readlink -f "$0")")
top=$(dirname "$here")
cd "$top"
arch=$(dpkg --print-architecture)
version=$("$python" -c 'from pathlib import Path; from provisioning.app_tree import project_version as v; print(v(Path(".")))')
rm -rf "$work"
mkdir -p "$work/root/DEBIAN" "$work/root/usr/share/rocketbox"
"$here/install.sh" "$work/root"
"$python" -m provisioning.app_tree "$work/root/usr/share/rocketbox/slot" --version "$version"
install -d "$work/root/usr/share/bash-completion/completions"
"$python" -m appliance completion bash > "$work/root/usr/share/bash-completion/completions/rocketbox"
install -D -m 644 LICENSE "$work/root/usr/share/doc/rocketbox/copyright"
[ ! -f docs/box.md ] || install -D -m 644 docs/box.md "$work/root/usr/share/doc/rocketbox/box.md"
printf '%s\n' 'Package: rocketbox' "Version: $version" "Architecture: $arch" 'Maintainer: Rocketbox <rocketbox@localhost>' \
    'Section: net' 'Priority: optional' "Depends: python3 (>= $(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')), openssl, systemd" \
    "Installed-Size: $(du -sk "$work/root" | cut -f1)" \
    'Description: a small Linux box as a RocketMQ appliance' \
    ' NameServer and Broker in one process, every acknowledgement synced, the log shipped upstream.' > "$work/root/DEBIAN/control"
cat > "$work/root/DEBIAN/postinst" <<'POST'
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
root=${DPKG_ROOT:-}
! command -v systemd-sysusers >/dev/null || systemd-sysusers --root="$root/" rocketbox.conf
! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --root="$root/" --create rocketbox.conf
/usr/bin/python3 -I "$root/usr/lib/rocketbox/slot.py" adopt "$root/usr/share/rocketbox/slot" @VERSION@ --base "$root/opt"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl preset rocketbox.service rocketbox-broker.socket rocketbox-namesrv.socket rocketbox-slot.service \
        rocketbox-selftest.service rocketbox-commit.service rocketbox-settled.path || :
    systemctl --no-block restart rocketbox-slot.service rocketbox.service || :
fi
POST
sed -i "s/@VERSION@/$version/" "$work/root/DEBIAN/postinst"
cat > "$work/root/DEBIAN/prerm" <<'PRE'
#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now rocketbox.service rocketbox-broker.socket rocketbox-namesrv.socket rocketbox-slot.service || :
fi
PRE
cat > "$work/root/DEBIAN/postrm" <<'POST'
#!/bin/sh
# purge takes slots and settings; what was stored stays until somebody removes /var/lib/rocketbox by hand
set -e
[ "$1" = purge ] || exit 0
root=${DPKG_ROOT:-}
chmod -R u+w "$root/opt/slots" 2>/dev/null || :
rm -rf "$root/opt/slots" "$root/opt/appliance" "$root/etc/rocketbox"
POST
chmod 755 "$work/root/DEBIAN/postinst" "$work/root/DEBIAN/prerm" "$work/root/DEBIAN/postrm"
dpkg-deb --root-owner-group -Zxz --build "$work/root" "$work/rocketbox_${version}_$arch.deb" >/dev/null
ls -l "$work"/*.deb

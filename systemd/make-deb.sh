#!/bin/bash
# make-deb.sh OUT PYTHON [--version V] [ARCH...]: OUT/rocketbox_V_ARCH.deb, one for every release that package_tree.py names.
# Without ARCH: amd64 and arm64. Nothing of the target runs here, so any machine builds for both. The same commit gives the same bytes.
set -euo pipefail
out=$1 python=$2
shift 2
here=$(dirname "$(readlink -f "$0")")
cd "$(dirname "$here")"
[ "${1-}" != --version ] || { version=$2; shift 2; }
version=${version:-$("$python" -c 'from pathlib import Path; from provisioning.packaging.app_tree import project_version as v; print(v(Path(".")))')}
deb_version=$(printf '%s' "$version" | sed -E 's/\.?(a|b|rc|dev)([0-9])/~\1\2/') # 1.0.0rc1 comes before 1.0.0
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
umask 022
own=/usr/lib/rocketbox/env # the private folder: the command and the units alone have it on their path

copy_files() { # ROOT: units and helpers, which start what lies in the private folder; apt has no slots
    "$here/install.sh" "$1"
    sed -i "s#/opt/appliance/bin/python#$own/bin/python#; \#slot\.py boot#d" "$1"/usr/lib/systemd/system/*.service
    sed -i '\#/opt/slots#d' "$1/usr/lib/tmpfiles.d/rocketbox.conf"
    find "$1" -name __pycache__ -prune -exec rm -rf {} + # py3compile makes it on the machine, for its Python
    chmod 644 "$1"/usr/lib/rocketbox/*.py
    rm "$1/usr/bin/rocketbox" "$1/usr/share/rocketbox/rocketbox.toml"
    printf '%s\n' '#!/bin/sh' "exec $own/bin/python -I -m appliance \"\$@\"" > "$1/usr/bin/rocketbox"
    chmod 755 "$1/usr/bin/rocketbox"
    install -D -m 644 systemd/rocketbox.toml "$1/etc/rocketbox/rocketbox.toml"
    install -d "$1/usr/share/bash-completion/completions" "$1/usr/share/lintian/overrides" "$1/usr/share/man/man1"
    "$python" -m appliance completion bash > "$1/usr/share/bash-completion/completions/rocketbox"
    install -m 644 "$here/debian/lintian-overrides" "$1/usr/share/lintian/overrides/rocketbox"
    install -D -m 755 "$here/debian/rtupdate" "$1/usr/share/python3/runtime.d/rocketbox.rtupdate"
    gzip -9n < "$here/debian/rocketbox.1" > "$1/usr/share/man/man1/rocketbox.1.gz"
    install -m 644 docs/box.md "$1/usr/share/doc/rocketbox/box.md"
    changelog | gzip -9n > "$1/usr/share/doc/rocketbox/changelog.gz"
}

changelog() {
    printf '%s\n\n' "rocketbox ($deb_version) stable; urgency=medium" '  * CHANGELOG.md of this version says what users notice.'
    printf ' -- %s  %s\n' "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
}

build() { # ARCH MACHINE
    local root=$out/root-$1
    rm -rf "$root"
    mkdir -p "$root/DEBIAN"
    copy_files "$root"
    "$python" -m provisioning.packaging.package_tree "$root$own" --machine "$2" --version "$version" \
        --copyright "$root/usr/share/doc/rocketbox/copyright"
    for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$root/DEBIAN/$script"; done
    echo /etc/rocketbox/rocketbox.toml > "$root/DEBIAN/conffiles"
    local kib
    kib=$(find "$root" -path "$root/DEBIAN" -prune -o -printf '%y %s\n' | awk '{n += $1 == "f" ? int(($2 + 1023) / 1024) : 1} END {print n}')
    sed "s/@VERSION@/$deb_version/; s/@ARCH@/$1/; s/@KIB@/$kib/; s/@MAINTAINER@/$maintainer/" \
        "$here/debian/control" > "$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path ./etc/rocketbox/rocketbox.toml -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums)
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0 touch -hd "@$SOURCE_DATE_EPOCH"
    dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$out/rocketbox_${deb_version}_$1.deb" > /dev/null
    rm -rf "$root"
}

maintainer="${DEBFULLNAME:-Rocketbox} <${DEBEMAIL:-rocketbox@localhost}>"
mkdir -p "$out"
rm -f "$out"/rocketbox_*.deb
for arch in "${@:-amd64 arm64}"; do for each in $arch; do
    case $each in
    amd64) build amd64 x86_64 ;;
    arm64) build arm64 aarch64 ;;
    *) echo "make-deb: unknown architecture $each, known: amd64 arm64" >&2; exit 2 ;;
    esac
done; done
(cd "$out" && sha256sum rocketbox_*.deb)

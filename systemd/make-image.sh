#!/bin/bash
# make-image.sh WORK PYTHON [--arch amd64|arm64] [--version V] [--key private.pem] [--bundle-only] [--root-shell] [--spoil selftest|panic]
# A bootable disk image WORK/rocketbox-V[-arm64].img.zst and the same root as a bundle WORK/rocketbox-V[-arm64]-image.rbx.
# --root-shell is for emulators: a root shell on the second serial line, and patience. --spoil makes what the tests roll back.
# No loop device and no mount: as root, or as a user who may map ids (newuidmap, /etc/subuid).
set -euo pipefail
work=$1 python=$2
shift 2
fail() { echo "make-image: $1" >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
top=$(dirname "$here")
version='' key='' shell='' spoil='' disk=1
host=$(dpkg --print-architecture)
arch=$host
while [ $# -gt 0 ]; do
    case $1 in
    --arch) arch=$2; shift ;;
    --version) version=$2; shift ;;
    --key) key=$(readlink -f "$2"); shift ;;
    --bundle-only) disk='' ;;
    --root-shell) shell=1 ;;
    --spoil) spoil=$2; shift ;;
    *) echo "make-image: unknown argument $1" >&2; exit 2 ;;
    esac
    shift
done
PATH=$PATH:/usr/sbin:/sbin
case $arch in # suffix of the files' names, processor, name of the boot loader, type of a root partition
amd64) suffix='' machine=x86_64 efi=x64 type=4f68bce3-e8cd-4db1-96e7-fbcaf984b709 ;;
arm64) suffix=-arm64 machine=aarch64 efi=aa64 type=b921b045-1df0-41c3-af44-4c6f280d3fae ;;
*) fail "no image for $arch: amd64 or arm64" ;;
esac
missing=
need() { [ -e "$1" ] || command -v "$1" >/dev/null || missing="$missing $2"; }
need mmdebstrap mmdebstrap; need mkfs.erofs erofs-utils; need mkfs.vfat dosfstools; need mcopy mtools; need sfdisk fdisk
need mkfs.ext4 e2fsprogs; need zstd zstd; need cpio cpio; need modprobe kmod; need openssl openssl
binfmt=/proc/sys/fs/binfmt_misc
[ "$arch" = "$host" ] || { need "qemu-$machine-static" qemu-user-static; need update-binfmts binfmt-support; need arch-test arch-test; }
[ -z "$missing" ] || fail "as root: apt-get install$missing"
[ "$arch" = "$host" ] || [ -e "$binfmt/qemu-$machine" ] || # installed, but the kernel was not told
    fail "programs for $arch do not start here; as root: mount -t binfmt_misc none $binfmt; update-binfmts --enable qemu-$machine"
suite=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
[ -n "${SUITE:=$suite}" ] || fail 'this is no Debian: name the release, as in SUITE=bookworm make image'
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else unshare --map-root-user --map-auto -- "$@"; fi; }
as_root true 2>/dev/null || fail 'neither root nor a user who may map ids: run it as root, or apt-get install uidmap'

mkdir -p "$work"
work=$(readlink -f "$work")
cache=$(dirname "$work")/image-cache # of all images built beside one another
mkdir -p "$cache"
cd "$top"
version=${version:-$("$python" -c 'from pathlib import Path; from provisioning.packaging.app_tree import project_version as v; print(v(Path(".")))')}
began=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - began)) "$*"; }

# --- Debian, once for all versions
packages=$(grep -v '^#' "$here/image/packages" | paste -sd,)
base="$cache/base-$arch-$(printf '%s' "$SUITE $packages" | cat - "$here/image/fetch-kernel.sh" | sha256sum | cut -c1-12).tar"
if [ ! -f "$base" ]; then
    say "Debian $SUITE for $arch: some 250 MB are fetched, once"
    paths=()
    for each in doc man locale info lintian bug; do paths+=("--dpkgopt=path-exclude=/usr/share/$each/*"); done
    rm -f "$cache/base-$arch"-*.tar
    nice mmdebstrap --quiet --variant=minbase --architectures="$arch" "${paths[@]}" --include="$packages" \
        --customize-hook="$here/image/fetch-kernel.sh" "$SUITE" "$base.new.tar" ${MIRROR:-}
    mv "$base.new.tar" "$base"
    say "Debian: $(du -m "$base" | cut -f1) MB"
fi

# --- the product, and the key whose bundles this image trusts
"$python" -m provisioning.packaging.app_tree "$work/slot" --machine $machine --version "$version" --compiled .build/libraries >/dev/null
if [ -z "$key" ]; then
    key=$("$python" -c 'import sys; from pathlib import Path; from provisioning.packaging.make_bundle import test_key
print(test_key(Path(sys.argv[1])))' "$work")
fi
openssl pkey -in "$key" -pubout -out "$work/trusted.pem"

as_root "$here/image/make-tree.sh" "$work" "$base" "$arch" "$version" "$(basename "$key" .pem)" "$shell" "$spoil"
say "root $(du -m "$work/root.erofs" | cut -f1) MB, initrd $(du -k "$work/initrd" | cut -f1) KiB"

esp=320 root=384 var=256
[ "$(stat -c %s "$work/root.erofs")" -le $((root << 20)) ] || fail "the root has more than $root MiB: shorten systemd/image/packages"
"$python" -m provisioning.packaging.make_bundle "$work" --arch "$arch" --version "$version" --key "$key" --root "$work/root.erofs" >/dev/null
[ -n "$disk" ] || { say "$(ls -1sh "$work/rocketbox-$version$suffix-image.rbx")"; exit 0; }

# --- the disk: ESP, two roots, var; systemd-repart adds the data partition on the box
rm -f "$work/esp.fat" "$work/var.ext4" "$work/disk.img"
mkfs.vfat -C -F 32 -n ROCKETBOX "$work/esp.fat" $((esp << 10)) >/dev/null
export MTOOLS_SKIP_CHECK=1
put() { mcopy -o -i "$work/esp.fat" "$1" "::$2"; }
mmd -i "$work/esp.fat" ::/EFI ::/EFI/BOOT ::/EFI/systemd ::/loader ::/loader/entries ::/rocketbox ::/rocketbox/a ::/rocketbox/b
put "$work/loader.efi" "/EFI/BOOT/BOOT${efi^^}.EFI"
put "$work/loader.efi" "/EFI/systemd/systemd-boot$efi.efi"
put "$here/image/loader.conf" /loader/loader.conf
put "$work/vmlinuz" /rocketbox/a/vmlinuz
put "$work/initrd" /rocketbox/a/initrd
"$python" -c 'import sys; from provisioning.root_slots import entry_text; print(end=entry_text(sys.argv[1], "a", 0, sys.argv[2]))' \
    "$version" "$(cat "$work/options")" > "$work/entry.conf"
put "$work/entry.conf" "/loader/entries/rocketbox-$version.conf"
truncate -s "${var}M" "$work/var.ext4"
rm -rf "$work/var"
mkdir -p "$work"/var/{lib,log/journal,cache,tmp,spool}
mkfs.ext4 -q -L rocketbox-var -E root_owner=0:0 -d "$work/var" "$work/var.ext4"
truncate -s $((1 + esp + root + root + var + 1))M "$work/disk.img"
sfdisk -q "$work/disk.img" <<TABLE
label: gpt
first-lba: 2048
start=1MiB, size=${esp}MiB, type=c12a7328-f81f-11d2-ba4b-00a0c93ec93b, name=esp
size=${root}MiB, type=$type, name=rocketbox-a
size=${root}MiB, type=$type, name=rocketbox-b
size=${var}MiB, type=4d21b016-b534-45c2-a9fb-5c16e091fd2d, name=rocketbox-var
TABLE
into() { dd if="$1" of="$work/disk.img" bs=1M seek="$2" conv=notrunc,sparse status=none; }
into "$work/esp.fat" 1
into "$work/root.erofs" $((1 + esp))
into "$work/var.ext4" $((1 + esp + root + root))
zstd -q -f -T0 -3 "$work/disk.img" -o "$work/rocketbox-$version$suffix.img.zst"
rm -f "$work/esp.fat" "$work/var.ext4" "$work/disk.img" "$work/entry.conf"
say "$(ls -1sh "$work/rocketbox-$version$suffix.img.zst" "$work/rocketbox-$version$suffix-image.rbx" | tr '\n' ' ')"

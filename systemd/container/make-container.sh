#!/bin/bash
# make-container.sh WORK WHEEL PYTHON [--arch amd64|arm64] [--kind box|gateway|spark]
# An image in the local storage of buildah and podman, and WORK/rocketbox[-KIND]-VERSION-container-ARCH.tar.zst.
# Packages are unpacked, never run: no root, no chroot, and amd64 makes arm64 too. PYTHON has pip; the image has its own.
set -euo pipefail
work=$1 wheel=$(readlink -f "$2") ours=$3
shift 3
here=$(dirname "$(readlink -f "$0")")
top=$(dirname "$(dirname "$here")")
host=$(dpkg --print-architecture 2>/dev/null || echo amd64)
arch=$host kind=box suite=${SUITE:-trixie} python=3.13
while [ $# -gt 0 ]; do
    case $1 in
    --arch) arch=$2 ;;
    --kind) kind=$2 ;;
    *) echo "make-container: unknown argument $1" >&2; exit 2 ;;
    esac
    shift 2
done
fail() { echo "make-container: $1" >&2; exit 2; }
case $arch in
amd64) machine=x86_64 loader=lib64/ld-linux-x86-64.so.2 ;;
arm64) machine=aarch64 loader=lib/ld-linux-aarch64.so.1 ;;
*) fail "no image for $arch: amd64 or arm64" ;;
esac
missing=
need() { command -v "$1" >/dev/null || missing="$missing $2"; }
need mmdebstrap mmdebstrap; need buildah buildah; need dpkg-deb dpkg; need zstd zstd
[ "$arch" = "$host" ] || need "qemu-$machine-static" qemu-user-static
[ -z "$missing" ] || fail "as root: apt-get install$missing"
case $kind in box) name=rocketbox ;; gateway | spark) name=rocketbox-$kind ;;
*) fail "no image of kind $kind: box, gateway or spark" ;; esac
version=${wheel##*/rocketbox-}
version=${version%%-*}
epoch=${SOURCE_DATE_EPOCH:-0}
mkdir -p "$work"
work=$(readlink -f "$work")
root=$work/$kind-$arch debs=$work/debs-$kind-$arch-$(sha256sum "$here/packages" | cut -c1-8)

# --- Debian: fetched once for each kind and architecture, verified by apt; `rm -r WORK` fetches what is newer
if [ ! -d "$debs" ]; then
    wanted=$(sed -n "s/^$kind  *//p" "$here/packages" | tr ' ' ,)
    rm -rf "$work/fetched" "$debs.new"
    mmdebstrap --quiet --variant=extract --format=directory --architectures="$arch" \
        --skip=check/qemu,cleanup/apt,essential/unlink,extract/unlink --include="$wanted" "$suite" "$work/fetched" ${MIRROR:-}
    mv "$work/fetched/var/cache/apt/archives" "$debs.new"
    [ "$kind" = spark ] || for each in $(sed -n 's/^- *//p' "$here/packages"); do rm -f "$debs.new/${each}_"*.deb; done
    chmod -R u+w "$work/fetched"
    rm -rf "$work/fetched"
    mv "$debs.new" "$debs"
fi
rm -rf "$root"
mkdir -p "$root"/{etc,proc,sys,dev,run,tmp,var/lib/dpkg/status.d,usr/{bin,sbin,lib,lib64}}
for each in bin sbin lib lib64; do ln -s "usr/$each" "$root/$each"; done
for deb in "$debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$root" -x --keep-directory-symlink --no-same-owner
    dpkg-deb -f "$deb" > "$root/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)" # where scanners of images look
done

# --- the locked libraries by their digests, then the wheel: unpacked as well
site=$root/usr/lib/python3/dist-packages
platforms=()
for each in manylinux2014 manylinux_2_28 manylinux_2_34; do platforms+=(--platform "${each}_$machine"); done
install() { "$ours" -m pip install -q --disable-pip-version-check --no-deps --no-compile --target "$site" "$@"; }
awk '/^[^ ]/ { take = !/^(setuptools|pyspark)==/ } take' "$top/.lock-$kind.txt" > "$work/lock-$kind.txt" # setuptools builds the wheel
install --require-hashes --only-binary=:all: --implementation cp --python-version $python "${platforms[@]}" -r "$work/lock-$kind.txt"
if [ "$kind" = spark ]; then # PyPI has only the sources of pyspark; its wheel is the same for every processor
    spark=$(sed -n 's/^pyspark==\([^ ]*\).*/\1/p' "$top/.lock-spark.txt")
    if ! compgen -G "$work/wheels/pyspark-$spark-*.whl" >/dev/null; then
        awk '/^[^ ]/ { take = /^pyspark==/ } take' "$top/.lock-spark.txt" > "$work/lock-pyspark.txt"
        "$ours" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --require-hashes \
            -w "$work/wheels" -r "$work/lock-pyspark.txt"
    fi
    install --no-index "$work/wheels/pyspark-$spark-"*.whl
    ln -s "$(basename "$(echo "$root"/usr/lib/jvm/java-21-openjdk-*)")" "$root/usr/lib/jvm/default"
fi
install --no-index --upgrade "$wheel"
[ "$kind" != box ] || (cd "$top" && "$ours" -m provisioning.packaging.library "$site/rocketbox/own" --machine "$machine" --python $python)
rm -rf "$site/bin"
find "$site" -name direct_url.json -delete # where the wheel lay on the machine that built
# The kernel drops what the first process of a container has no handler for: SIGTERM would wait for SIGKILL.
echo 'import os; os.getpid() == 1 and __import__("signal").signal(15, lambda *_: os._exit(0))' > "$site/rocketbox-stop.pth"

# --- the commands, one user, and what nobody needs
ln -s python$python "$root/usr/bin/python3"
printf '%s\n' '#!/usr/bin/python3 -I' 'import sys' 'from rocketbox import main' 'sys.exit(main())' > "$root/usr/bin/rocketbox"
chmod 755 "$root/usr/bin/rocketbox"
user=10911
printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' "rocketbox:x:$user:$user::/var/lib/rocketbox:/sbin/nologin" > "$root/etc/passwd"
printf '%s\n' 'root:x:0:' "rocketbox:x:$user:" > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root" -depth -type d -empty -path '*/usr/share/doc/*' -delete
rm -rf "$root"/usr/share/{man,locale,info,lintian,bug,applications,pixmaps,base-files,zoneinfo/right} "$root"/usr/lib/*-linux-gnu/gconv \
    "$root"/usr/lib/python$python/{test,idlelib,tkinter,turtledemo,ensurepip,pydoc_data} "$root"/etc/{update-motd.d,motd*,dpkg} \
    "$site"/{psutil,numpy,numpy/*}/tests "$site"/trio/_tests "$site"/trio/_core/_tests
find "$site" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' -o -name '*.h' -o -name '*.c' \) -delete

# --- byte code by the image's own Python: a read-only root can keep none later. -B: what it loads itself would name this folder
run=("$root/$loader" --library-path "$root/usr/lib/$machine-linux-gnu")
[ "$arch" = "$host" ] || run=("qemu-$machine-static" -L "$root")
"${run[@]}" "$root/usr/bin/python$python" -IB -m compileall -q --invalidation-mode unchecked-hash -s "$root" \
    "$root/usr/lib/python$python" "$site" || fail "the Python of the image does not compile its modules"

# --- one layer, the same bytes for the same inputs
chmod -R u+rwX,go+rX,go-w "$root"
chmod 1777 "$root/tmp"
context=$work/context-$kind-$arch
rm -rf "$context"
mkdir -p "$context/data"
tar -C "$root" -c --sort=name --format=gnu --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -f "$context/root.tar" .
image=localhost/$name:$version
latest=localhost/$name:latest told=$image # the name on the machine that loads the archive
[ "$arch" = "$host" ] || { image=$image-$arch; latest=$latest-$arch; }
former=$(buildah images --quiet --no-trunc "$image" 2>/dev/null || true)
built=$(buildah build --quiet --format docker --timestamp "$epoch" --platform "linux/$arch" --target "$kind" \
    --build-arg "VERSION=$version" --tag "$image" -f "$here/Containerfile" "$context")
buildah tag "$image" "$latest"
size=$(du -sm --apparent-size "$root" | cut -f1)
chmod -R u+w "$root"
rm -rf "$root"
if [ "$kind" = spark ]; then # a gigabyte that a registry keeps as layers: no archive
    rm -rf "$context"
    echo "$image: $size MB of files"
    exit
fi
archive=$work/$name-$version-container-$arch.tar
rm -f "$archive" "$archive.plain" "$archive.zst"
buildah push --quiet "$image" "docker-archive:$archive:$told"
"$ours" "$here/plain_archive.py" "$archive" "$archive.plain"
zstd -q -12 -T1 -f "$archive.plain" -o "$archive.zst" # Podman unpacks it in a second, xz in half a minute; 4.3 refuses gzip
if [ "$arch" = "$host" ]; then # so that the image here is the one of the archive; a foreign one would take its name
    buildah pull --quiet "docker-archive:$archive.zst" >/dev/null
    buildah tag "$image" "$latest"
fi
for each in $(buildah images --quiet --no-trunc --filter dangling=true); do # its name went to the one of the archive
    case "$former $built" in *"${each#sha256:}"*) buildah rmi "$each" >/dev/null || true ;; esac
done
echo "$image: $size MB of files, $(du -h --apparent-size "$archive.zst" | cut -f1)B $archive.zst"
rm -rf "$context" "$archive" "$archive.plain"

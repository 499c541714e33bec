#!/bin/bash
# libraries.sh OUT PYTHON CACHE [MACHINE-PYTHON...]: the libraries of compiled modules for packages, x86_64-3.11 and so on.
# Zig's C compiler makes them for both machines on either, for glibc 2.28; Python's headers come from Debian's packages.
# Nothing of the target runs here. PYTHON has mypy. What is missing is said in one line, then packages are pure Python.
set -euo pipefail
out=$1 python=$2 cache=$3
shift 3
here=$(dirname "$(readlink -f "$0")")
zig=0.17.1
pure() { rm -rf "$out"; echo "packages run as pure Python: $1"; exit 0; }
command -v mmdebstrap >/dev/null || pure 'no headers without mmdebstrap; as root: apt-get install mmdebstrap'
mkdir -p "$cache"
cache=$(readlink -f "$cache")
if [ ! -x "$cache/zig-$zig/ziglang/zig" ]; then
    "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$cache/zig-$zig" "ziglang==$zig" || pure 'Zig cannot be installed'
fi
headers() { # SUITE ARCH PYTHON: unpacked once
    local folder=$cache/headers-$3-$2 fetched
    [ ! -d "$folder" ] || return 0
    fetched=$(mktemp -d "$cache/fetched.XXXX")
    chmod 777 "$fetched"
    mmdebstrap --quiet --variant=custom --format=null --architectures="$2" --skip=check/qemu --setup-hook="cd '$fetched' && \
        export APT_CONFIG=\"\$MMDEBSTRAP_APT_CONFIG\" && apt-get update -qq && apt-get download -qq libpython$3-dev" "$1" - ${MIRROR:-} &&
        dpkg-deb -x "$fetched"/*.deb "$fetched/root" && mv "$fetched/root/usr/include" "$folder"
    rm -rf "$fetched"
    [ -d "$folder" ]
}
targets=()
for each in "${@:-x86_64-3.11 x86_64-3.13 aarch64-3.11 aarch64-3.13}"; do for one in $each; do
    machine=${one%-*} version=${one#*-} suite=bookworm arch=amd64
    [ "$version" != 3.13 ] || suite=trixie
    [ "$machine" != aarch64 ] || arch=arm64
    headers "$suite" "$arch" "$version" || pure "the headers of Python $version for $machine cannot be fetched"
    targets+=(--target "cpython-${version/./}-$machine-linux-gnu"
        "$cache/headers-$version-$arch/python$version:$cache/headers-$version-$arch"
        "'$cache/zig-$zig/ziglang/zig' cc -target $machine-linux-gnu.2.28")
done; done
export ZIG_GLOBAL_CACHE_DIR=$cache/zig-objects ZIG_LOCAL_CACHE_DIR=$cache/zig-objects
exec "$python" "$here/build.py" "$out" --if-changed --sealed "${targets[@]}"

#!/bin/bash
# make-release.sh OUT PYTHON KEY FILE...: the files, their parts (SBOM), what compose needs, checksums and a signature in OUT.
# KEY is the Ed25519 key that signs bundles. docs/installing.md says how a user verifies.
set -euo pipefail
out=$1 python=$2 key=$(readlink -f "$3")
shift 3
top=$(dirname "$(dirname "$(readlink -f "$0")")")
version=$("$python" -c 'import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])
from provisioning.packaging.app_tree import project_version as v; print(v(Path(sys.argv[1])))' "$top")
for each in "$@"; do
    case ${each##*/} in
    *[-_]"$version"[-_.]*) ;;
    *) echo "make-release: ${each##*/} is not of version $version: make clean, then make release" >&2; exit 2 ;;
    esac
done
rm -rf "$out"
mkdir -p "$out"
cp "$@" "$out"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 0)}
names() { sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' "$top/$1" | grep -vx setuptools; }
mapfile -t box < <(names .lock-box.txt)
mapfile -t gateway < <(names .lock-gateway.txt)
"$python" "$top/systemd/sbom.py" "$out/rocketbox-$version.cdx.json" "$version" "${box[@]}"
"$python" "$top/systemd/sbom.py" "$out/rocketbox-gateway-$version.cdx.json" "$version" "${gateway[@]}"
tar -C "$top" -c --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r \
    --transform "s#.*/#rocketbox-$version-compose/#" systemd/container/compose.yaml systemd/container/prometheus.yml \
    docs/alerts.yml docs/alerts-centre.yml | gzip -9n > "$out/rocketbox-$version-compose.tar.gz"
cd "$out"
sha256sum -- * > ../SHA256SUMS.new # the list does not list itself
mv ../SHA256SUMS.new SHA256SUMS
openssl pkeyutl -sign -rawin -inkey "$key" -in SHA256SUMS -out SHA256SUMS.sig
openssl pkey -in "$key" -pubout -out rocketbox-release.pem
openssl pkeyutl -verify -rawin -pubin -inkey rocketbox-release.pem -sigfile SHA256SUMS.sig -in SHA256SUMS >/dev/null
echo "$out: $(wc -l < SHA256SUMS) files of version $version, $(du -shc -- * | tail -n 1 | cut -f1)B"

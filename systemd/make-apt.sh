#!/bin/bash
# make-apt.sh OUT DEBS KEY [--new-key]: put the packages of DEBS into the signed apt repository OUT, beside those it has already.
# KEY is a GnuPG folder; with --new-key, where it holds no key, one is made that needs no passphrase.
set -euo pipefail
out=$1 debs=$2 key=$3 new=${4:-}
umask 022
export GNUPGHOME
[ -d "$key" ] || [ -n "$new" ] || { echo "make-apt: no folder $key" >&2; exit 2; }
mkdir -p "$out/pool/main" "$key"
key=$(readlink -f "$key")
chmod 700 "$key"
short=$(mktemp -d) # the agent's socket lies in the folder, and the name of a socket has at most 107 characters
ln -s "$key" "$short/key"
GNUPGHOME=$short/key
trap 'gpgconf --kill gpg-agent; rm -rf "$short"' EXIT
sign() { gpg --batch --yes --quiet --digest-algo SHA512 "$@"; }

if ! gpg --batch --list-secret-keys --with-colons 2>/dev/null | grep -q '^sec'; then
    [ -n "$new" ] || { echo "make-apt: $key holds no secret key of GnuPG; name the folder that does" >&2; exit 2; }
    gpg --batch --quiet --passphrase '' --quick-generate-key \
        "${DEBFULLNAME:-Rocketbox} <${DEBEMAIL:-rocketbox@localhost}>" ed25519 sign never
    echo "new signing key in $key: keep a copy, machines that trust it refuse any other"
fi

cp "$debs"/rocketbox_*.deb "$out/pool/main/"
cd "$out"
rm -rf dists
for arch in amd64 arm64; do
    folder=dists/stable/main/binary-$arch
    mkdir -p "$folder"
    dpkg-scanpackages --multiversion --arch "$arch" pool/main > "$folder/Packages" 2>/dev/null
    xz -k9 "$folder/Packages"
done
cd dists/stable
{
    printf '%s\n' 'Origin: Rocketbox' 'Label: Rocketbox' 'Suite: stable' 'Codename: stable' 'Architectures: amd64 arm64' \
        'Components: main' 'Description: Rocketbox for Debian bookworm and trixie' "Date: $(date -Ru)" 'SHA256:'
    find main -type f | LC_ALL=C sort | while read -r file; do
        printf ' %s %s %s\n' "$(sha256sum "$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"
    done
} > Release
sign --clearsign --output InRelease Release
sign --armor --detach-sign --output Release.gpg Release
cd ../..
gpg --batch --armor --export > rocketbox.asc
echo "$out: $(find pool -name '*.deb' | wc -l) packages, signed by $(gpg --batch --quiet --no-auto-check-trustdb --with-colons --list-keys | awk -F: '$1 == "fpr" {print $10; exit}')"

#!/bin/bash
# make-tree.sh WORK BASE ARCH VERSION KEY_NAME ROOT_SHELL SPOIL: root.erofs, vmlinuz, initrd, options and loader.efi in WORK.
# As root, or mapped to it.
set -euo pipefail
work=$1 base=$2 arch=$3 version=$4 key=$5 shell=$6 spoil=$7
case $arch in # serial lines: of console and provisioning, of the root shell
amd64) line=ttyS0 second=ttyS1 ;;
arm64) line=ttyAMA0 second=ttyS0 ;;
esac
here=$(dirname "$(readlink -f "$0")")
tree=$work/tree
[ ! -e "$tree" ] || { chmod -R u+w "$tree"; rm -rf "$tree"; }
mkdir -p "$tree"
tar -C "$tree" -xf "$base" --exclude='./dev/*'

# --- kernel: only the modules a small board needs
kernel=$(ls "$tree/lib/modules")
full=$tree/lib/modules/$kernel kept=$work/modules
rm -rf "$kept"
mkdir -p "$kept/lib/modules/$kernel/kernel"
more=$here/modules-$arch
[ -e "$more" ] || more=
grep -hv '^#' "$here/modules" $more | while read -r path; do
    [ -e "$full/kernel/$path" ] || continue
    mkdir -p "$kept/lib/modules/$kernel/kernel/$(dirname "$path")"
    cp -a "$full/kernel/$path" "$kept/lib/modules/$kernel/kernel/$(dirname "$path")/"
done
[ -f "$full/modules.dep" ] || depmod -b "$tree" "$kernel"
(cd "$kept/lib/modules/$kernel" && find kernel -name '*.ko') > "$work/modules.list"
awk -F'[: ]+' 'NR == FNR { for (i = 2; i <= NF; i++) need[$1] = need[$1] " " $i; next }
    { n = split(need[$1], each, " "); for (i = 1; i <= n; i++) if (!seen[each[i]]++) print each[i] }' \
    "$full/modules.dep" "$work/modules.list" | while read -r path; do # and what they need
    [ -e "$kept/lib/modules/$kernel/$path" ] || install -D -m 644 "$full/$path" "$kept/lib/modules/$kernel/$path"
done
cp "$full"/modules.{builtin,builtin.modinfo,order} "$kept/lib/modules/$kernel/"
rm -rf "$full"
cp -a "$kept/lib/modules/$kernel" "$full"
depmod -b "$tree" "$kernel"
cp "$tree/boot/vmlinuz-$kernel" "$work/vmlinuz"
cp "$tree"/usr/lib/systemd/boot/efi/systemd-boot*.efi "$work/loader.efi"
rm -rf "$tree/usr/lib/systemd/boot"

# --- initrd: busybox, drivers, one script
initrd=$work/initrd.d
rm -rf "$initrd"
mkdir -p "$initrd"/{bin,dev,proc,sys,run,sysroot,m}
cp "$tree/bin/busybox" "$initrd/bin/"
install -m 755 "$here/initrd-init" "$initrd/init"
grep -v '^#' "$here/initrd-modules" | while read -r name; do
    { modprobe -d "$tree" -S "$kernel" --show-depends "$name" 2>/dev/null || true; } | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r path; do
    cp "$path" "$initrd/m/"
    echo "/m/$(basename "$path")"
done > "$initrd/modules.order"
(cd "$initrd" && find . | cpio -o -H newc --quiet --reproducible) | zstd -q -10 -f -o "$work/initrd"

# --- the product
DESTDIR='' "$here/../install.sh" "$tree"
put() { install -D -m "$1" "$here/$2" "$tree$3"; }
install -D -m 644 "$work/trusted.pem" "$tree/usr/lib/rocketbox/keys/$key.pem"
mkdir -p "$tree/usr/share/rocketbox"
cp -a "$work/slot" "$tree/usr/share/rocketbox/slot"
put 644 rocketbox-image.service /usr/lib/systemd/system/rocketbox-image.service
put 644 commit.conf /usr/lib/systemd/system/rocketbox-commit.service.d/image.conf
put 644 preset /usr/lib/systemd/system-preset/20-image.preset
put 644 dhcp.network /usr/lib/systemd/network/80-rocketbox-dhcp.network
put 644 repart-data.conf /usr/lib/repart.d/50-data.conf
put 644 fstab /etc/fstab
: > "$tree/usr/lib/modules-load.d/rocketbox.conf" # the initrd has loaded what there is
put 644 softdog.service /usr/lib/systemd/system/rocketbox-softdog.service
echo rocketbox > "$tree/etc/hostname"
echo uninitialized > "$tree/etc/machine-id"
ln -sf /run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
sed -i -e '/^IMAGE_/d' "$tree/usr/lib/os-release"
printf 'IMAGE_ID=rocketbox\nIMAGE_VERSION=%s\n' "$version" >> "$tree/usr/lib/os-release"
# panic=10 also before sysctl; the label of the root is put in front by whoever installs it. fsck.repair=yes: a torn block
# of the file system itself is mended without a question, since nobody is there to answer it (systemd-fsck(8)).
echo "ro quiet loglevel=4 console=tty0 console=$line,115200 panic=10 oops=panic fsck.repair=yes systemd.gpt_auto=0 systemd.show_status=error" > "$work/options"
mkdir -p "$tree/usr/lib/rocketbox/boot"
cp "$work/vmlinuz" "$work/initrd" "$work/options" "$tree/usr/lib/rocketbox/boot/"

# --- users, units that start
systemd-sysusers --root="$tree" rocketbox.conf systemd-network.conf systemd-resolve.conf systemd-timesync.conf 2>/dev/null ||
    systemd-sysusers --root="$tree"
rm -f "$tree"/etc/systemd/system/*.wants/* "$tree"/etc/systemd/system/*.requires/*
systemctl --root="$tree" preset-all >/dev/null 2>&1
systemctl --root="$tree" enable rocketbox-provision@$line.service rocketbox-softdog.service >/dev/null 2>&1
systemctl --root="$tree" mask serial-getty@$line.service getty@.service systemd-binfmt.service \
    proc-sys-fs-binfmt_misc.automount systemd-firstboot.service ldconfig.service systemd-hwdb-update.service \
    systemd-journal-catalog-update.service systemd-update-done.service >/dev/null 2>&1
systemctl --root="$tree" set-default multi-user.target >/dev/null 2>&1
pack=lz4hc,9
if [ -n "$shell" ]; then # for an emulator: a way in, and patience with a processor that is a fiftieth of a board's
    pack=lz4
    put 644 root-shell.service /usr/lib/systemd/system/root-shell.service
    sed -i "s/ttyS1/$second/g" "$tree/usr/lib/systemd/system/root-shell.service"
    systemctl --root="$tree" enable root-shell.service >/dev/null 2>&1
    put 644 patience-manager.conf /usr/lib/systemd/system.conf.d/90-patience.conf
    for unit in rocketbox rocketbox-slot rocketbox-selftest rocketbox-image rocketbox-escalate; do
        put 644 patience-unit.conf "/usr/lib/systemd/system/$unit.service.d/90-patience.conf"
    done
    put 644 patience-watchdog.conf /usr/lib/systemd/system/rocketbox.service.d/91-patience.conf
fi
case $spoil in # for tests of the way back
selftest) # a source counts instead of the byte code beside it
    { cat "$here/../../appliance/commands/box/selftest.py"; printf '\n\ndef run(arguments):\n    return 7\n'; } \
        >"$(echo "$tree"/usr/share/rocketbox/slot/lib/python3*/site-packages/appliance/commands/box)/selftest.py" ;;
panic) printf '%s\n' '[Unit]' 'DefaultDependencies=no' 'After=local-fs.target' '[Service]' 'Type=oneshot' \
    'ExecStart=/bin/sh -c "echo 1 >/proc/sys/kernel/sysrq; echo 1 >/proc/sys/kernel/panic; echo c >/proc/sysrq-trigger"' > "$tree/usr/lib/systemd/system/panic.service"
    mkdir -p "$tree/etc/systemd/system/sysinit.target.wants"
    ln -s /usr/lib/systemd/system/panic.service "$tree/etc/systemd/system/sysinit.target.wants/" ;;
'') ;;
*) echo "make-tree: unknown --spoil $spoil" >&2; exit 2 ;;
esac

python3 -I "$tree/usr/lib/rocketbox/slot.py" prepare "$tree/usr/share/rocketbox/slot" "$version" # after what spoils it
chown -R 0:0 "$tree/usr/share/rocketbox"

# --- smaller
rm -rf "$tree"/boot/* "$tree"/vmlinuz* "$tree"/initrd* "$tree"/usr/share/{doc,man,locale,info,bug,lintian,perl*,zoneinfo/right} \
    "$tree"/usr/lib/python3*/{test,idlelib,tkinter,lib2to3,ensurepip,pydoc_data} "$tree"/usr/lib/*-linux-gnu/{gconv,perl*}
# Every file of the root has the time 0, which Debian's byte code takes for a change: each start would compile its modules.
chroot "$tree" /bin/sh -c 'exec python3 -I -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3*'
mkdir -p "$tree/usr/lib/sysimage"
mv "$tree/var/lib/dpkg" "$tree/usr/lib/sysimage/dpkg" # for audits
rm -rf "$tree"/var/* "$tree"/tmp/* "$tree"/run/*
mkdir -p "$tree"/{proc,sys,dev,run,tmp,mnt,var,opt/slots}
rm -f "$work/root.erofs"
mkfs.erofs "-z$pack" --quiet -T0 -U c1d2e3f4-0000-4000-8000-00000000000a "$work/root.erofs" "$tree" >/dev/null
truncate -s %4096 "$work/root.erofs"
du -sm "$tree" | sed 's/\t.*/ MB in the tree/'
chmod -R u+w "$tree"
rm -rf "$tree" "$kept" "$initrd"

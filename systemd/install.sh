#!/bin/sh
# Put units, settings and root helpers below DESTDIR (empty: this machine). Slots and data are not touched.
set -eu
dest=${1-}
here=$(dirname "$(readlink -f "$0")")
top=$(dirname "$here")
put() { install -D -m "$1" "$2" "$dest$3"; }

for unit in "$here"/*.service "$here"/*.socket "$here"/*.path "$here"/*.timer "$here"/*.target; do
    put 644 "$unit" "/usr/lib/systemd/system/$(basename "$unit")"
done
put 644 "$here/preset" /usr/lib/systemd/system-preset/10-rocketbox.preset
put 644 "$here/drop-ins/system.conf" /usr/lib/systemd/system.conf.d/10-rocketbox.conf
put 644 "$here/drop-ins/journald.conf" /usr/lib/systemd/journald.conf.d/10-rocketbox.conf
put 644 "$here/drop-ins/timesyncd.conf" /usr/lib/systemd/timesyncd.conf.d/10-rocketbox.conf
put 644 "$here/drop-ins/floating-address.conf" /usr/lib/rocketbox/floating-address.conf  # whose group needs it copies it
put 644 "$here/sysusers.conf" /usr/lib/sysusers.d/rocketbox.conf
put 644 "$here/tmpfiles.conf" /usr/lib/tmpfiles.d/rocketbox.conf
put 644 "$here/sysctl.conf" /usr/lib/sysctl.d/60-rocketbox.conf
put 644 "$here/udev.rules" /usr/lib/udev/rules.d/60-rocketbox.rules
put 644 "$here/modules-load.conf" /usr/lib/modules-load.d/rocketbox.conf
put 644 "$here/fstab.example" /usr/share/doc/rocketbox/fstab.example
put 644 "$here/rocketbox.toml" /usr/share/rocketbox/rocketbox.toml  # every key commented out
for name in escalate slot image; do put 755 "$here/helpers/$name.py" "/usr/lib/rocketbox/$name.py"; done
for path in watchdog/__init__ watchdog/boots watchdog/escalate watchdog/helper watchdog/notes watchdog/reset_reason \
    provisioning/__init__ provisioning/slots provisioning/root_slots; do
    put 644 "$top/$path.py" "/usr/lib/rocketbox/lib/$path.py"
done
# byte code beside them: they run at every boot, where it may not be written
/usr/bin/python3 -I -m compileall -q -s "$dest" --invalidation-mode checked-hash "$dest/usr/lib/rocketbox/lib"
install -d -m 755 "$dest/usr/lib/rocketbox/keys" "$dest/usr/bin"
ln -sfn /opt/appliance/bin/rocketbox "$dest/usr/bin/rocketbox"

#!/bin/bash
# test-wheel.sh WORK WHEEL PYTHON [PYTEST-ARGS]: the quick tests against the installed wheel, beside PyPI's watchdog.
# WORK/venv has the wheel; WORK/tree has what the repository holds but the six folders, so nothing else can be imported.
set -euo pipefail
mkdir -p "$1"
work=$(readlink -f "$1") wheel=$(readlink -f "$2") python=$3
shift 3
top=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
cd "$top"
pip() { "$work/venv/bin/python" -m pip "$@" --disable-pip-version-check; }
locked=$(cat .constraints.txt .lock-gateway.txt pyproject.toml | sha256sum)
if [ "$(cat "$work/locked" 2>/dev/null)" != "$locked" ]; then
    rm -rf "$work/venv" "$work/locked"
    "$python" -m venv "$work/venv"
    pip install -q --require-hashes -r .lock-gateway.txt
    pip install -q -c .constraints.txt "$wheel[dev,gateway]" watchdog
    echo "$locked" > "$work/locked"
fi
pip install -q --no-deps --no-index --force-reinstall "$wheel"
rm -rf "$work/tree"
mkdir -p "$work/tree"
git ls-files -z --cached --others --exclude-standard -- . ':!appliance' ':!storage_driver' ':!netstack' ':!watchdog' ':!provisioning' ':!uplink_spark' |
    xargs -0 cp --parents -t "$work/tree"
cd "$work/tree"
site=$(echo "$work"/venv/lib/python3*/site-packages)
unset PYTHONPATH
"$work/venv/bin/python" - "$site" <<'CHECK'
import importlib.metadata as metadata, importlib.util as find, sys
import netstack, watchdog
site = sys.argv[1]
theirs = metadata.distribution("watchdog")
assert watchdog.__file__ == f"{site}/watchdog/__init__.py", watchdog.__file__
ours = {str(file) for file in metadata.distribution("rocketbox").files}
assert not ours & {str(file) for file in theirs.files}, "the wheel has files of watchdog's"
assert netstack.__file__.startswith(f"{site}/rocketbox/open/"), netstack.__file__
assert find.find_spec("appliance") is None and find.find_spec("provisioning") is None
print(f"import watchdog: PyPI's {theirs.version}; rocketbox {metadata.version('rocketbox')} owns none of its files")
CHECK
export PYTHONPATH="$site/rocketbox/own:$site/rocketbox/open:$work/tree" # the order of rocketbox/__init__.py, then tests
"$work/venv/bin/python" - "$site" <<'CHECK'
import importlib, sys
for folder, names in {"own": ("appliance", "provisioning", "watchdog"), "open": ("netstack", "storage_driver", "uplink_spark")}.items():
    for name in names:
        assert importlib.import_module(name).__file__ == f"{sys.argv[1]}/rocketbox/{folder}/{name}/__init__.py", name
print("rocketbox: its six folders are those of the wheel, its own watchdog in front")
CHECK
# What these tests read is the checkout, not the product.
checkout=(--ignore=tests/test_layers.py --ignore=tests/test_names.py)
for each in appliance/test_commands.py::test_every_command_has_a_module_of_its_own \
    appliance/test_supervision.py::test_a_slot_that_is_a_link_into_the_image_is_told_by_its_name \
    watchdog/test_helper.py::test_the_helper_needs_nothing_but_the_standard_library; do
    checkout+=("--deselect=tests/$each")
done
exec "$work/venv/bin/python" -m pytest -q -p no:cacheprovider -m 'not slow' "${checkout[@]}" "$@"

"""Modules that load when they are used: what a box without TLS and keys does not load, and that nobody notices else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.box import Child

LATER = "from appliance.later import load_later; load_later(); import sys; "


def said(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", LATER + code], capture_output=True, text=True, timeout=60)
    return found.stdout.strip() or found.stderr.strip().splitlines()[-1]


def test_a_module_is_loaded_at_the_first_look_and_is_then_the_real_one() -> None:
    assert said("import hmac, trio; print('_hashlib' in sys.modules, '_ssl' in sys.modules)") == "False False"
    digest = "hmac.new(b'k', b'm', 'sha256').hexdigest()[:8]"
    assert said(
        f"import hmac; from hashlib import sha256; print({digest}, sha256 is sys.modules['hashlib'].sha256)"
    ) == ("b60090e3 True")
    assert said(
        "import ssl; print(ssl.create_default_context().check_hostname, issubclass(ssl.SSLError, OSError))"
    ) == ("True True")


def test_a_package_is_loaded_whole() -> None:
    code = (
        "import idna, trio; core = 'idna.core'; "
        "print(core in sys.modules, idna.encode('b\\u00fccher.de'), core in sys.modules)"
    )
    assert said(code) == "False b'xn--bcher-kva.de' True"


@pytest.mark.parametrize("code", ["import ssl; ssl.nothing", "from ssl import nothing"])
def test_what_is_not_in_it_is_told_as_ever(code: str) -> None:
    assert "'nothing'" in said(code)


def test_many_threads_load_it_once() -> None:
    code = (
        "import ssl, threading; seen = []; "
        "each = [threading.Thread(target=lambda: seen.append(ssl.SSLContext)) for _ in range(8)]; "
        "[one.start() for one in each]; [one.join() for one in each]; print(len(seen), len(set(seen)))"
    )
    assert said(code) == "8 1"


def test_a_module_that_is_there_stays() -> None:
    assert said("import json; load_later(['json']); print(sys.modules['json'] is json, json.dumps(1))") == "True 1"


def test_a_box_whose_clients_need_no_openssl_has_none(tmp_path: Path) -> None:
    config = tmp_path / "rocketbox.toml"
    config.write_text('[box]\nname = "press"\n')
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    box = Child(
        ["-m", "appliance", "serve", "--config", str(config), "--data", str(tmp_path / "data"), *ports],
        tmp_path / "log",
    )
    try:
        box.start()
        assert "libcrypto" not in Path(f"/proc/{box.pid}/maps").read_text()
    finally:
        box.kill()

import io
import json
from argparse import Namespace
from pathlib import Path

import pytest

from appliance.device.bench_console import Console, load_bench
from provisioning.errors import ProvisioningError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_a_line_of_text_ends() -> None:
    out = Terminal()
    console = Console(as_json=False, out=out)
    console.show("upload", 0, 2_000_000)
    console.show("upload", 2_000_000, 2_000_000)
    console.say("Done", "all of it")
    assert "████████████████████ 100%  2.0/2.0 MB" in out.getvalue()
    assert out.getvalue().endswith("\n Done      all of it\n")


def test_a_pipe_gets_a_line_per_tenth() -> None:
    out = io.StringIO()
    console = Console(as_json=False, out=out)
    for done in range(1001):
        console.show("upload", done, 1000)
    assert len(out.getvalue().splitlines()) == 11


def test_a_program_gets_objects_only() -> None:
    out = io.StringIO()
    console = Console(as_json=True, out=out)
    console.say("Port", "/dev/x", port="/dev/x")
    console.show("upload", 5, 10)
    console.warn("cable")
    assert console.fail(ProvisioningError("E301", "no space", needs=5)) == 5
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["event"] for row in rows] == ["port", "progress", "warning", "error"]
    assert rows[-1]["facts"] == {"needs": 5}


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (Terminal(), " ! link lost\n\r ! link lost (2 times)\x1b[K"),
        (io.StringIO(), " ! link lost\n ! link lost (10 times)\n ! link lost (100 times)\n"),
    ],
)
def test_a_pulled_cable_is_one_line_with_a_count(out: io.StringIO, said: str) -> None:
    console = Console(as_json=False, out=out)
    for _ in range(120):
        console.warn("link lost")
    assert out.getvalue().startswith(said)
    assert out.getvalue().count("\n") == said.count("\n")
    console.say("Done", "it is back")
    console.warn("link lost")
    assert out.getvalue().endswith(" Done      it is back\n ! link lost\n")


def test_two_runs_that_make_a_secret_do_not_overwrite_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    first, second = (load_bench(Namespace(secret=None, owner="")) for _ in range(2))
    first.keep()
    with pytest.raises(ProvisioningError, match="no box was claimed"):
        second.keep()
    assert load_bench(Namespace(secret=None, owner="")).fleet_secret == first.fleet_secret


def test_nobody_agrees_without_a_terminal_unless_told_to() -> None:
    assert Console(as_json=True, yes=True).ask("Write?")
    assert not Console(as_json=True).ask("Write?")


def test_the_fleet_secret_is_made_once_and_a_wrong_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = load_bench(Namespace(secret=None, owner=""))
    assert not (tmp_path / ".config").exists()  # no box has been claimed with it
    made.keep()
    made.keep()
    assert load_bench(Namespace(secret=None, owner="acme")).fleet_secret == made.fleet_secret
    (tmp_path / "short").write_text("abcd")
    for path in (tmp_path / "short", tmp_path / "missing"):
        with pytest.raises(ProvisioningError) as caught:
            load_bench(Namespace(secret=path, owner=""))
        assert caught.value.exit_status == 4

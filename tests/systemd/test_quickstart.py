"""The quickstart and README's two commands, as they are written: on an empty Debian, by a user who may use sudo."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from provisioning.packaging.app_tree import project_version
from tests.systemd.debian import Debian, debian_root, needs_debian
from tests.systemd.machine import TOP
from tests.systemd.pages import Block, PageUnclear, read_blocks, script

QUICKSTART, README = TOP / "docs/quickstart-box.md", TOP / "README.md"
VERSION = project_version(TOP)
SUITE, EMPTY = "trixie", ("sudo", "ca-certificates")
HERE = (
    "/etc/pip.conf",
    "/etc/apt/apt.conf.d",
    "/etc/ssl/certs/ca-certificates.crt",
)  # how this machine reaches the package registries
CABLE = """
mkdir -p ~/cable-box/usr/lib/rocketbox/keys && cp .build/bundle/test.pem ~/cable-box/usr/lib/rocketbox/keys/
python -m appliance device --pty --root ~/cable-box --serial RBX-0008 > /tmp/cable.log 2>&1 &
until CABLE=$(sed -n 's/^ready port=\\([^ ]*\\).*/\\1/p' /tmp/cable.log) && [ -n "$CABLE" ]; do sleep 0.1; done
"""


class Bench:
    """An empty Debian with one user. Each terminal is a shell of its own, without a network unless it is online."""

    def __init__(self, folder: Path) -> None:
        self.root, self._source = (
            debian_root(SUITE, folder / f"bench-{os.getpid()}", packages=EMPTY),
            folder / "source.git",
        )
        subprocess.run(["git", "clone", "-q", "--bare", TOP, self._source], check=True)
        self._inside("useradd", "--create-home", "--shell=/bin/bash", "you")
        (self.root / "etc/sudoers.d/you").write_text("you ALL=(ALL) NOPASSWD: ALL\n")
        for path in map(Path, HERE):
            if path.exists():
                subprocess.run(["cp", "-rLT", "--remove-destination", path, self.root / str(path)[1:]], check=True)
        subprocess.run(["chown", "-R", "1000:1000", self._source], check=True)

    def _inside(self, *words: str) -> None:
        subprocess.run(["chroot", self.root, *words], check=True, capture_output=True)

    def terminal(self, text: str, *, online: bool) -> str:
        """Run a script as the user, return its output. Raises AssertionError with the end of it."""
        (self.root / "home/you/page.sh").write_text(text)
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--console=pipe"]
        words += ["-D", str(self.root), "--user=you", f"--bind={self._source}:/source.git", "--chdir=/home/you"]
        words += [f"--setenv={name}={value}" for name, value in os.environ.items() if name.endswith("_proxy")]
        words += [] if online else ["--private-network"]
        done = subprocess.run(
            [*words, "/bin/bash", "/home/you/page.sh"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    shutil.rmtree(made.root)


def terminals(page: Path) -> Iterator[tuple[str, list[Block]]]:
    """Yield the blocks of a page that run one after another in one place, in their order."""
    blocks = [block for block in read_blocks(page) if block.place]
    for (_, place), several in groupby(blocks, lambda block: (block.section, block.place)):
        yield place, list(several)


@pytest.mark.parametrize("page", [QUICKSTART, README], ids=lambda page: page.name)
def test_every_block_of_the_page_says_where_it_runs_or_why_not(page: Path) -> None:
    blocks = read_blocks(page)
    assert {block.place for block in blocks} <= {"bench", "box", ""}
    for block in blocks:
        assert block.commands
        for option in ("background", "skip"):
            assert option not in block.options or any(block.has(option, each) for each in block.commands), block


def test_a_block_without_a_mark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A\n<!-- run: bench -->\nmore\n```\nls\n```\n")
    with pytest.raises(PageUnclear, match=r"page\.md:5"):
        read_blocks(tmp_path / "page.md")


def test_the_script_stops_at_the_first_command_that_fails(tmp_path: Path) -> None:
    text = '# A\n<!-- run: bench, skip "no": slow -->\n```\necho one  # why\nno\nfalse && \\\n    true\necho two\n```\n'
    (tmp_path / "page.md").write_text(text)
    done = subprocess.run(["bash", "-c", script(read_blocks(tmp_path / "page.md"))], capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (1, "+ echo one\none\n+ false && true\nFAILED: false && true\n")


@pytest.mark.soak
@needs_debian
@pytest.mark.xdist_group("packages")
def test_the_pages_lead_from_an_empty_machine_to_a_box(bench: Bench, tmp_path: Path) -> None:
    first, *rest = terminals(QUICKSTART)
    said = bench.terminal(script(first[1]).replace("git clone URL", "git clone /source.git"), online=True)
    enter = 'cd rocketbox && export PATH="$PWD/.venv/bin:$PATH"\n'
    for place, blocks in rest:
        if place == "box":
            said += on_a_box(bench, blocks, tmp_path)
        else:
            text = enter + CABLE + script(blocks, words='--port "$CABLE" --yes')
            said += bench.terminal(text, online=any("online" in block.options for block in blocks))
    for serial in ("RBX-0007", "RBX-0008"):
        assert f"Done      {serial} runs {VERSION} in slot b" in said
    for line in (
        "Total     1 done, 0 skipped, 0 failed",
        "certificates in certs",
        '"status": "SEND_OK"',
        '"body": "hello"',
    ):
        assert line in said
    for _, blocks in terminals(README):
        said = bench.terminal(enter + script(blocks), online=False)
    assert "rows in Spark, 0 missing, 0 double, 0 gaps" in said


def on_a_box(bench: Bench, blocks: list[Block], folder: Path) -> str:
    """Run a page's commands as root on a Debian that runs, with the package that the bench has made."""
    machine = Debian(folder, SUITE)
    package = next((bench.root / "home/you/rocketbox/.build/deb").glob("*_amd64.deb"))
    shutil.copy(package, machine.root / "root")
    (machine.root / "root/page.sh").write_text("cd\n" + script(blocks))
    try:
        machine.start()
        said = machine.done("bash", "/root/page.sh")
        print(said)
        return said
    finally:
        machine.stop()
        shutil.rmtree(machine.root)

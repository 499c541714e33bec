"""One table of exit codes: docs/cli.md shows it, help ends with it, and the constants of the commands are in it."""

from pathlib import Path

import pytest

from appliance.__main__ import COMMANDS, main
from appliance.commands.box import config, selftest, serve, status
from appliance.commands.device import provision
from appliance.commands.exit_codes import COMMON, OWN, epilog, table
from appliance.commands.messaging import cluster, namesrv
from provisioning.errors import EXIT_STATUS

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_table() -> None:
    assert table() in (ROOT / "docs/cli.md").read_text()


def test_the_table_is_of_commands_there_are() -> None:
    assert OWN.keys() <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("serve", {0, 2, *(code for _, code in serve.CODES)}),
        ("status", {*status.EXIT.values(), 2}),
        ("selftest", {0, 2, selftest.NOT_PASSED}),
        ("config", {0, 2, config.WRONG_CONFIG}),
        ("namesrv", {0, 2, namesrv.WRONG_CONFIG, namesrv.MISSING_FILE}),
        ("fleet", {0, 2, *EXIT_STATUS.values(), provision.INTERRUPTED}),
    ],
)
def test_the_codes_of_a_command_are_those_of_the_table(name: str, codes: set[int]) -> None:
    assert OWN[name].keys() == codes


def test_the_common_codes_are_those_of_cluster_commands() -> None:
    assert {cluster.OK, cluster.FAILED} <= COMMON.keys()


@pytest.mark.parametrize("name", ["status", "topics"])
def test_help_ends_with_the_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert capsys.readouterr().out.rstrip().endswith(epilog(name))

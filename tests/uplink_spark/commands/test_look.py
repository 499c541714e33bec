"""Looking at a landing zone: exit codes, JSON a program can read, and errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from uplink_spark.__main__ import main
from uplink_spark.commands.gateway import now_ms
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, gap_piece, raw_piece

SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(10)])


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    made = MadeLanding(tmp_path / "zone")
    made.land(raw_piece(RAW[: 4 * SIZE], 0), now_ms=now_ms())
    facts: dict[str, object] = {"id": [7, 1], "class": "missing", "reason": "quota_bytes", "records": 2, "bytes": 194}
    made.land(gap_piece(4 * SIZE, 6 * SIZE, facts), now_ms=now_ms())
    made.close()
    return tmp_path / "zone"


@pytest.mark.parametrize("command", ["boxes", "manifest", "gaps", "check", "lag --consumer x"])
def test_a_place_that_is_no_zone_is_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command.split()
    assert main([name, "--landing", str(tmp_path), *options]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert str(tmp_path) in said.err


def test_an_empty_zone_has_heads_and_no_rows_and_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MadeLanding(tmp_path / "zone", shards=2).close()
    at = ["--landing", str(tmp_path / "zone")]
    assert main(["boxes", *at]) == 0
    assert capsys.readouterr().out.split() == ["BOX", "EPOCH", "LANDED", "TO", "LAG", "LAST", "GAPS", "STATE"]
    assert main(["boxes", *at, "--json"]) == main(["gaps", *at, "--json"]) == main(["manifest", *at]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", *at]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("manifest 0000: 0 entries, seq 0..-, no hole; 0 packs")


def test_every_line_of_json_is_one_object(zone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("boxes", "manifest", "gaps", "check"):
        assert main([command, "--landing", str(zone), "--json"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines, command
        assert all(isinstance(line, dict) for line in lines)
    assert main(["gaps", "--landing", str(zone), "--json"]) == 0
    gap = json.loads(capsys.readouterr().out)
    assert (gap["epoch"], gap["start"], gap["end"]) == ("123456789abcdef", 4 * SIZE, 6 * SIZE)
    assert gap["gap"]["reason"] == "quota_bytes"


def test_people_see_a_gap_with_its_size_and_cause(zone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gaps", "--landing", str(zone)]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row == ["box-17", "12345678", "388", "582", "194", "B", "missing", "quota_bytes", "2"]


@pytest.mark.slow
def test_what_lands_is_followed(zone: Path) -> None:
    command = [sys.executable, "-m", "uplink_spark", "manifest", "--follow", "--json", "--landing", str(zone)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as following:
        assert following.stdout is not None
        try:
            assert [json.loads(following.stdout.readline())["seq"] for _ in range(2)] == [0, 1]
            made = MadeLanding(zone)
            made.land(raw_piece(RAW[6 * SIZE :], 6 * SIZE), now_ms=now_ms())
            made.close()
            late = json.loads(following.stdout.readline())
            assert (late["seq"], late["start"], late["end"]) == (2, 6 * SIZE, 10 * SIZE)
        finally:
            following.terminate()


def export(zone: Path, *options: str) -> int:
    return main(["export", "--landing", str(zone), "--box", "box-17", *options])


def test_an_export_is_the_log_to_the_byte_from_any_place(zone: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for start, end in ((0, 4 * SIZE), (5, 200), (SIZE, SIZE + 1), (7, 7)):
        assert export(zone, "--from", str(start), "--to", str(end), "--out", str(out)) == 0
        assert out.read_bytes() == RAW[start:end]
    assert export(zone, "--from", "0", "--to", "9", "--epoch", "0123456789abcdef", "--out", str(out)) == 0
    assert out.read_bytes() == RAW[:9]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--from", "0", "--to", "600"], 2, "bytes from log offset 388 are not in the landing zone"),
        (["--from", "0", "--to", "9", "--epoch", "1"], 2, "bytes from log offset 0 are not in the landing zone"),
        (["--from", "0", "--to", "9", "--out", "/nowhere/at/all"], 1, "/nowhere/at/all: No such file or directory"),
    ],
)
def test_an_export_that_cannot_be_done_says_where_it_ends(
    zone: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = options if "--out" in options else [*options, "--out", str(tmp_path / "out")]
    assert export(zone, *given) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_an_epoch_that_is_no_number_is_wrong_usage(zone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        export(zone, "--from", "0", "--to", "9", "--epoch", "newest")
    assert ended.value.code == 2
    assert "argument --epoch: invalid hex_number value: 'newest'" in capsys.readouterr().err


def test_a_pack_that_is_gone_is_named_by_an_export(zone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = next((zone / "pack").glob("*/*/*.pack"))
    pack.unlink()
    assert export(zone, "--from", "0", "--to", "9", "--out", "/dev/null") in (1, 2)
    assert pack.name in capsys.readouterr().err


def test_a_consumer_nobody_knows_is_told_with_those_there_are(zone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (zone / "consumers").mkdir(exist_ok=True)
    (zone / "consumers/bronze.json").write_text('{"offsets": {"0": 1}, "updated_ms": 1}')
    assert main(["lag", "--landing", str(zone), "--consumer", "silver"]) == 1
    assert capsys.readouterr().err == "no consumer silver; there are: bronze\n"
    assert main(["lag", "--landing", str(zone), "--consumer", "bronze", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["at"], told["end"], told["lag_entries"]) == (1, 2, 1)
    assert 0 <= told["lag_s"] < 3600

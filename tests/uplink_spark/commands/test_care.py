"""Commands that change a landing zone: only one that exists, only what was named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from uplink_spark.__main__ import main
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.commands.gateway import now_ms
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece

OLD_MS = 1_700_000_000_000


@pytest.mark.parametrize("command", [["retire", "box-17"], ["clean"]])
def test_a_mistyped_landing_zone_is_refused_and_not_made(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--landing", str(tmp_path / "typo")]) == 2
    assert str(tmp_path / "typo") in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("name", ["../../etc/x", ".hidden", "", "a b"])
def test_only_a_box_name_can_be_retired(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MadeLanding(tmp_path / "zone").close()
    assert main(["retire", name, "--landing", str(tmp_path / "zone")]) == 2
    assert "1 to 64 of A-Z a-z 0-9 . _ -" in capsys.readouterr().err
    assert not list((tmp_path / "zone").rglob("retired"))
    assert main(["retire", "box-17", "--landing", str(tmp_path / "zone")]) == 2
    assert capsys.readouterr().err == f"no box box-17 has connected to {tmp_path / 'zone'}, nor has any\n"
    CentreRecords(tmp_path / "zone", 1).save("box-17", 5, ((7, 0),))
    assert main(["retire", "box-71", "--landing", str(tmp_path / "zone")]) == 2
    assert capsys.readouterr().err.endswith(", did you mean box-17?\n")
    assert not list((tmp_path / "zone").rglob("retired"))
    assert main(["retire", "box-17", "--landing", str(tmp_path / "zone")]) == 0
    assert "its data stays" in capsys.readouterr().out
    assert CentreRecords(tmp_path / "zone", 1).load("box-17").retired


def test_a_dry_run_says_what_would_go_and_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landing = MadeLanding(tmp_path / "zone")
    landing.land(log_piece([MadeRecord()]), now_ms=OLD_MS)
    landing.land(log_piece([MadeRecord(queue_offset=1)], 97), now_ms=now_ms())
    landing.close()
    old, new = sorted((tmp_path / "zone/pack").glob("*/*/*.pack"))
    size = old.stat().st_size
    zone = ["clean", "--landing", str(tmp_path / "zone")]
    assert main([*zone, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"shard 0000: would remove 1 packs, {size} bytes\n"
    assert old.exists()
    assert main([*zone, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    pack = str(old.relative_to(tmp_path / "zone"))
    assert told == {"shard": 0, "packs": [pack], "bytes": size, "manifest_files": []}
    assert (old.exists(), new.exists()) == (False, True)
    assert main(zone) == 0
    assert "removed 0 packs, 0 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["[]", "{", '{"offsets": "x"}', '{"offsets": [1]}', '{"updated_ms": "soon"}', "7"])
def test_a_consumer_file_of_another_shape_removes_nothing_and_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing = MadeLanding(tmp_path / "zone")
    landing.land(log_piece([MadeRecord()]), now_ms=OLD_MS)
    landing.close()
    (tmp_path / "zone/consumers").mkdir(exist_ok=True)
    (tmp_path / "zone/consumers/spark.json").write_text(text)
    assert main(["clean", "--landing", str(tmp_path / "zone")]) == 2  # the gateway's retention rests likewise
    assert "spark.json: " in (said := capsys.readouterr().err)
    assert "remove it or let its consumer write it again" in said
    assert len(list((tmp_path / "zone/pack").glob("*/*/*.pack"))) == 1

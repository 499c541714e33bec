"""`sweep`: what is wrong with one stick's box is said, the others are swept, the exit code is 10."""

from __future__ import annotations

from pathlib import Path

import pytest

from uplink_spark.__main__ import main


def sweep(tmp_path: Path, *options: str) -> int:
    return main(["sweep", str(tmp_path / "stick"), "--landing", str(tmp_path / "zone"), *options])


def test_a_stick_without_boxes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stick/box-17").mkdir(parents=True)
    assert sweep(tmp_path) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'stick'} holds no <box>/INDEX.mac\n"


def test_a_zone_in_a_bucket_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "s3://bucket/zone?endpoint_override=127.0.0.1:1&scheme=http&region=x"
    assert main(["sweep", str(tmp_path), "--landing", url]) == 2
    assert "is in a bucket: put the files of the stick below inbox/ in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (None, "with a file box-17 of what `rocketbox uplink identity --secret` says on it, or --trust box-17"),
        (b"not hex", "secrets/box-17 cannot be used: non-hexadecimal number"),
        (b"\xff\xfe", "secrets/box-17 cannot be used: 'utf-8' codec"),
        (b"00" * 32, "the MAC is wrong"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_the_next_box_is_looked_at(
    secret: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for box in ("box-17", "box-18"):
        (tmp_path / "stick" / box).mkdir(parents=True)
        (tmp_path / "stick" / box / "INDEX.mac").write_bytes(b"\xa0" + b"m" * 32)
    (tmp_path / "secrets").mkdir()
    if secret is not None:
        (tmp_path / "secrets/box-17").write_bytes(secret)
    assert sweep(tmp_path, "--secrets", str(tmp_path / "secrets")) == 10
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["box-17", "box-18"]
    assert said in lines[0]

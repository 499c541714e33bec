from pathlib import Path

from appliance.clock import clock_trusted, kernel_synchronised


def test_a_clock_set_by_the_bench_in_this_boot_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "set").touch()
    assert clock_trusted(tmp_path / "set")


def test_otherwise_the_kernel_is_asked_and_answers(tmp_path: Path) -> None:
    assert clock_trusted(tmp_path / "set") in (True, False)
    assert kernel_synchronised() in (True, False)

"""The machine's own figures from /proc and /sys, also where half of them are missing."""

from __future__ import annotations

from pathlib import Path

from appliance.page.vitals import HostVitals, Ticks, hottest, memory_of, read_vitals, ticks_of

STAT = "cpu  100 10 50 800 30 5 5 0 7 0\ncpu0 1 2 3\n"


def test_the_processor_is_busy_with_what_is_neither_idle_nor_waiting() -> None:
    assert ticks_of(STAT) == Ticks(busy=170, all=1000)
    assert Ticks(270, 1200).share_since(Ticks(170, 1000)) == 0.5
    assert Ticks(170, 1000).share_since(Ticks(170, 1000)) == 0.0


def test_memory_in_use_is_what_programs_cannot_have() -> None:
    assert memory_of("MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\n") == (4_096_000, 0.75)


def test_the_hottest_sensor_counts_and_nonsense_does_not() -> None:
    assert hottest(["41000\n", "55500", "-273000", "9999999", "what"]) == 55.5
    assert hottest([]) is None


def test_a_machine_that_tells_nothing_has_no_figures(tmp_path: Path) -> None:
    assert read_vitals(tmp_path) == HostVitals()


def test_this_machine_tells(tmp_path: Path) -> None:
    seen = read_vitals()
    assert seen.ticks.all > 0
    assert 0 < seen.memory_used < 1
    assert 1 << 20 < seen.own_bytes < seen.memory_bytes
    assert seen.up_s > 0
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "temp").write_text("48250\n")
    assert read_vitals(tmp_path).temperature_c == 48.25

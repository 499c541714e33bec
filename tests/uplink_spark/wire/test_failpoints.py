"""Crash steps: only the named one, only at its turn, and by a signal nobody can catch."""

from __future__ import annotations

import os
import signal

import pytest

from uplink_spark.wire.failpoints import failpoint_from, no_failpoint


@pytest.mark.parametrize("setting", [None, ""])
def test_without_a_setting_no_step_does_anything(setting: str | None) -> None:
    assert failpoint_from(setting) is no_failpoint
    failpoint_from(setting)("G3")


@pytest.mark.parametrize(("setting", "dies_at"), [("G3", 1), ("G3:", 1), ("G3:1", 1), ("G3:3", 3)])
def test_the_process_dies_at_the_step_it_was_told(setting: str, dies_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[tuple[int, int]]()
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    step = failpoint_from(setting)
    for turn in range(1, dies_at + 1):
        step("G2")
        step("G33")
        assert killed == []
        step("G3")
        assert bool(killed) == (turn == dies_at)
    assert killed == [(os.getpid(), signal.SIGKILL)]

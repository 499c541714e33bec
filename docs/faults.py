"""Writes docs/faults.md: every fault, what must happen, the tests that inject it, and how they ended now.

.venv/bin/python docs/faults.py [--run [--missing]]     without --run the results of the last time stay
"""

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
OUT = TOP / "docs/faults.md"
MACHINE = "tests/systemd/test_machine.py"
DEVICE = "tests/provisioning/test_device.py"


class Fault(NamedTuple):
    """`tests` are node ids or the beginnings of them; `seed` where chance decides."""

    name: str
    expected: str
    tool: str
    tests: tuple[str, ...]
    seed: str = "-"


FAULTS = (
    Fault(
        "kill -9",
        "serves again within the clients' timeout of 3 s, no connection refused",
        "real systemd",
        (f"{MACHINE}::test_after_kill_nine",),
    ),
    Fault(
        "process frozen (SIGSTOP)",
        "the watchdog aborts it, systemd starts a new process",
        "real systemd",
        (f"{MACHINE}::test_a_frozen",),
    ),
    Fault(
        "disk stalls",
        "the watchdog is not fed and aborts the process; the box serves again when the disk does",
        "frozen ext4",
        (f"{MACHINE}::test_a_stalled",),
    ),
    Fault(
        "five crashes in 300 s",
        "one reboot, with the reason recorded",
        "real systemd",
        (f"{MACHINE}::test_five_crashes",),
    ),
    Fault(
        "endless crashes",
        "reboot, other slot, safe mode, never a loop",
        "table",
        ("tests/watchdog/test_escalate.py::test_whatever", "tests/watchdog/test_helper.py::test_the_second_loop"),
    ),
    Fault(
        "every row of the escalation",
        "the action of the table",
        "table",
        ("tests/watchdog/test_escalate.py::test_each_row",),
    ),
    Fault(
        "three panics in a row",
        "safe mode before the product starts",
        "files of a boot",
        ("tests/watchdog/test_helper.py::test_three_panics",),
    ),
    Fault(
        "wrong configuration",
        "exit 78, the last good one runs",
        "real systemd",
        (f"{MACHINE}::test_a_wrong_configuration",),
    ),
    Fault(
        "wrong configuration, no good one",
        "safe mode, left on request",
        "real systemd",
        (f"{MACHINE}::test_without_a_good",),
    ),
    Fault(
        "data disk missing",
        "at most one reboot, then safe mode or read-only",
        "real systemd",
        (f"{MACHINE}::test_a_data_disk",),
    ),
    Fault("good update", "committed after the self-test", "real systemd", (f"{MACHINE}::test_a_good_version",)),
    Fault(
        "update crashes",
        "rollback to the old slot, the version is recorded as bad",
        "real systemd",
        (f"{MACHINE}::test_a_version_that_crashes",),
    ),
    Fault(
        "update fails its self-test",
        "rollback to the old slot after the last try",
        "real systemd",
        (f"{MACHINE}::test_a_version_that_fails",),
    ),
    Fault(
        "power cut while installing",
        "the old slot runs, the installation can be repeated",
        "interrupted call",
        ("tests/provisioning/test_slots.py::test_an_interrupted",),
    ),
    Fault(
        "bit flip in a slot",
        "found and reported with the file",
        "changed file",
        ("tests/provisioning/test_slots.py::test_a_bit_flip",),
    ),
    Fault(
        "bundle cut, flipped, foreign key",
        "E303, nothing changed",
        "changed file",
        ("tests/provisioning/test_bundle.py", f"{DEVICE}::test_a_bundle_with"),
    ),
    Fault(
        "noise, lost bytes, console text",
        "costs only time",
        "pty pair",
        (f"{DEVICE}::test_a_noisy",),
        "11–14",
    ),
    Fault("slow line, 9600 baud", "works", "pty pair", (f"{DEVICE}::test_9600",)),
    Fault(
        "cable pulled",
        "the transfer resumes",
        "pty pair",
        (f"{DEVICE}::test_a_pulled", f"{DEVICE}::test_an_upload_resumes"),
    ),
    Fault(
        "failed change of the line speed",
        "both ends return to the old speed",
        "pty pair",
        (f"{DEVICE}::test_both_ends",),
    ),
    Fault(
        "another owner, replayed proof",
        "E202, E203, the waiting time doubles",
        "pty pair",
        (f"{DEVICE}::test_another_fleet", "tests/provisioning/test_session.py"),
    ),
    Fault(
        "port in use",
        "E103 with the other program's name",
        "pty",
        ("tests/provisioning/test_port.py::test_a_port_is_ours",),
    ),
    Fault(
        "interrupted fleet run",
        "a second run finishes, the receipts are consistent",
        "50 boxes over sockets",
        ("tests/provisioning/test_fleet.py::test_fifty",),
    ),
    Fault("each cause in docs/operate.md", "doctor names it", "facts", ("tests/appliance/health/test_doctor.py",)),
    Fault(
        "any frame, any noise",
        "no message is decoded from it",
        "generated",
        ("tests/provisioning/test_frame.py",),
        "by hypothesis",
    ),
    Fault(
        "power cut at any write or sync",
        "starts; every acknowledged message is there",
        "recording disk, all steps",
        ("tests/power_cut/test_power_cut.py::test_no_power_cut", "tests/power_cut/test_power_cut.py::test_a_cut_while"),
        "in the test",
    ),
    Fault(
        "power cut under ext4",
        "the same on a real file system",
        "block recorder",
        ("tests/power_cut/test_ext4.py",),
        "in the test",
    ),
    Fault(
        "a disk that ignores syncs",
        "the tests above fail (control)",
        "recording disk",
        ("tests/power_cut/test_power_cut.py::test_a_disk_that_ignores",),
    ),
    Fault(
        "fdatasync fails",
        "no acknowledgement of that group, the log is sealed, reads continue",
        "preload shim; faulty disk",
        ("tests/power_cut/test_failing_sync.py", "tests/power_cut/test_disk_faults.py::test_a_failed_sync"),
    ),
    Fault(
        "error at any disk step",
        "no acknowledged message is missing",
        "faulty disk, all steps",
        ("tests/power_cut/test_disk_faults.py::test_an_error",),
    ),
    Fault(
        "disk full",
        "sends are refused, then accepted again without a restart",
        "faulty disk",
        ("tests/power_cut/test_disk_faults.py::test_no_room",),
    ),
    Fault(
        "disk takes no writes",
        "`read_only`: reads served, sends refused, nothing written",
        "whole box",
        ("tests/appliance/test_read_only.py",),
    ),
    Fault(
        "clock of 1970, steps of ten years",
        "nothing is deleted, order and search stay correct",
        "injected clock",
        ("tests/storage_driver/log/test_clock.py",),
    ),
    Fault(
        "slow link, lost link, cut transfers",
        "the uplink resumes",
        "relay between sockets",
        ("tests/uplink_spark/test_slow_link.py",),
    ),
    Fault(
        "box or gateway killed at any step",
        "nothing lost, nothing twice",
        "real processes",
        ("tests/uplink_spark/test_kills.py::test_a_box_killed_at", "tests/uplink_spark/test_kills.py::test_a_gateway"),
    ),
    Fault(
        "broken frames, byte by byte, silence, thousands of connections, peers that never read",
        "closed or refused, memory bounded, the others served",
        "real sockets",
        ("tests/netstack/test_hostile_input.py",),
    ),
    Fault(
        "any code with any content as a request",
        "an answer, never a crash",
        "whole box",
        ("tests/appliance/test_fuzz.py",),
        "by hypothesis",
    ),
    Fault(
        "image cut off while installing",
        "the old image boots, the installation can be repeated",
        "files for partitions",
        ("tests/provisioning/test_root_slots.py::test_cut_off", "tests/provisioning/test_root_slots.py::test_an_image"),
    ),
    Fault(
        "another machine has the same address",
        "doctor names both",
        "network name spaces",
        ("tests/appliance/health/test_duplicate_address.py",),
    ),
)
EMULATED = (  # fault, expectation, row of docs/box.md that `make test-image` writes
    ("power cut of the whole machine under load", "nothing acknowledged lost", "power cuts under load"),
    ("image whose self-test fails", "automatic rollback", "update to an image whose self-test fails"),
    ("image whose kernel panics", "automatic rollback", "update to an image whose kernel panics"),
    ("kernel frozen", "hardware reset, reason `watchdog`", "kernel frozen → reset by the watchdog card"),
)
UNTRIED = (
    ("brown-out, worn-out flash", "-", "bench checklist"),
    ("out of memory under cgroup v2", "restart, nothing acknowledged lost", "limits do not act in this container"),
)


def results(tests: list[str]) -> dict[str, tuple[str, float]]:
    """Run the tests, return node id -> (outcome, seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        files = sorted({test.partition("::")[0] for test in tests})
        subprocess.run([sys.executable, "-m", "pytest", "-q", *files, f"--junitxml={report}"], cwd=TOP, check=False)
        found = {}
        for case in ElementTree.parse(report).iter("testcase"):
            path = case.attrib["classname"].replace(".", "/") + ".py"
            bad = "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"
            outcome = "skipped" if case.find("skipped") is not None else bad
            found[f"{path}::{case.attrib['name']}"] = (outcome, float(case.attrib["time"]))
        return found


def known() -> dict[str, str]:
    """Return the lines of the present table by fault."""
    lines = OUT.read_text().splitlines() if OUT.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


def emulated() -> list[str]:
    """Return the lines whose results `make test-image` has left in docs/box.md."""
    rows = [line.strip("| ").split(" | ") for line in (TOP / "docs/box.md").read_text().splitlines() if " | " in line]
    said = {cells[0]: cells[-1] for cells in rows}
    end = "seed 1 | `tests/image/run.py` |"
    return [f"| {fault} | {ends} | emulator | {said.get(name, 'not run')} | {end}" for fault, ends, name in EMULATED]


def row(fault: Fault, found: dict[str, tuple[str, float]]) -> str:
    """Return one line of the table."""
    mine = [one for name, one in found.items() if name.startswith(fault.tests)]
    count = {word: sum(outcome == word for outcome, _ in mine) for word in ("passed", "failed", "skipped")}
    said = ", ".join(f"{number} {word}" for word, number in count.items() if number) or "not run"
    names = "<br>".join(f"`{test.removeprefix('tests/')}…`" for test in fault.tests)
    took = f"{said}, {sum(seconds for _, seconds in mine):.1f} s" if mine else said
    return f"| {fault.name} | {fault.expected} | {fault.tool} | {took} | {fault.seed} | {names} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="run the tests first (minutes; some need root)")
    parser.add_argument("--missing", action="store_true", help="only the tests of rows without a result")
    arguments = parser.parse_args()
    old = known()
    stays = {fault.name for fault in FAULTS if fault.name in old and "not run" not in old[fault.name]}
    keep = stays if arguments.missing or not arguments.run else set()
    wanted = [test for fault in FAULTS if fault.name not in keep for test in fault.tests]
    found = results(wanted) if arguments.run and wanted else {}
    lines = ["# Faults", "", "Made by `docs/faults.py --run`.", ""]
    lines += ["| fault | expected | tool | result | seed | tests |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [old[fault.name] if fault.name in keep else row(fault, found) for fault in FAULTS]
    lines += emulated()
    lines.append("")
    lines += ["Not tried here:", "", "| fault | expected | why |", "| --- | --- | --- |"]
    lines += [f"| {fault} | {expected} | {why} |" for fault, expected, why in UNTRIED]
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

import gc
import os
import resource
import socket
from pathlib import Path

from watchdog.vitals import ProcessVitals, VitalSigns, listener_of, memory_limit_bytes


def group(root: Path, path: str, name: str, value: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / name).write_text(value + "\n")


def test_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    group(tmp_path / "cg", "system.slice/rocketbox.service", "memory.max", "max")
    group(tmp_path / "cg", "system.slice", "memory.max", "536870912")
    own = tmp_path / "own"
    own.write_text("0::/system.slice/rocketbox.service\n")
    assert memory_limit_bytes(tmp_path / "cg", own) == 512 << 20


def test_the_old_hierarchy_is_read_where_memory_is_mounted_and_its_huge_number_is_no_limit(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/box\n3:cpu,cpuacct:/\n")
    group(tmp_path / "cg/memory", "box", "memory.limit_in_bytes", "9223372036854771712")
    assert memory_limit_bytes(tmp_path / "cg", own) is None
    group(tmp_path / "cg/memory", "box", "memory.limit_in_bytes", "1048576")
    assert memory_limit_bytes(tmp_path / "cg", own) == 1 << 20


def test_without_any_group_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path, tmp_path / "missing") is None


def test_this_process_has_plausible_vitals(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left open must not be closed between the two looks
    signs = VitalSigns()
    before = signs.read()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    after = signs.read()
    for handle in opened:
        os.close(handle)
    assert 4 << 20 < before.memory_bytes < before.memory_limit_bytes
    assert after.descriptors - before.descriptors == 20


def test_without_a_descriptor_to_look_with_all_are_taken() -> None:
    signs = VitalSigns()
    before = signs.read()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # open(2) is refused from here on with EMFILE
    try:
        seen = signs.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (seen.descriptor_ratio, seen.memory_bytes) == (1.0, before.memory_bytes)


def test_ratios_are_of_the_limit_and_no_limit_is_no_pressure() -> None:
    seen = ProcessVitals(memory_bytes=90, memory_limit_bytes=100, descriptors=5, descriptor_limit=0)
    assert (seen.memory_ratio, seen.descriptor_ratio) == (0.9, 0)


def test_the_program_behind_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert f"process {os.getpid()}" in listener_of(listener.getsockname()[1])
    assert listener_of(1) == ""

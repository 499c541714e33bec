from pathlib import Path

import pytest
import trio

from provisioning.device import serve_device
from provisioning.errors import ProvisioningError
from provisioning.fleet import FleetRow, FleetRun, RowResult, read_rows, text_of
from provisioning.flow import DesiredState, ProvisioningResult, load_receipt, provision
from provisioning.host import Bench, BenchConversation, keep_trying
from provisioning.ownership import box_secret, receipt_fits
from provisioning.port import StreamLine, serve_socket
from provisioning.testing import folder_box

BENCH = Bench(bytes(range(32)), "acme", "erika")
CSV = "serial,name,site,address,gateway,set.store.segment_mib\n"


def errors_of(text: str) -> list[str]:
    with pytest.raises(ProvisioningError) as caught:
        read_rows(text)
    assert caught.value.code == "E401"
    return list(caught.value.facts["errors"])


def test_a_file_of_a_spreadsheet_is_read_with_bom_crlf_and_semicolons() -> None:
    text = "\ufeffserial;name;site;address\r\nA1;press-{n:03d};Hall 2;10.0.0.2/24\r\n;press-{n:03d};;\r\n\r\n"
    rows = read_rows(text)
    assert [(row.line, row.serial, row.name, row.site) for row in rows] == [
        (2, "A1", "press-001", "Hall 2"),
        (3, "", "press-002", ""),
    ]
    assert rows[0].network == {"address": "10.0.0.2/24"}


def test_settings_are_columns_of_their_own() -> None:
    (row,) = read_rows(CSV + "A1,one,,dhcp,,64\n")
    assert row.settings == {"store.segment_mib": "64"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("A1,one,,,,\nA1,two,,,,\n", "line 3: serial A1 is in line 2 already"),
        ("A1,one,,,,\nA2,one,,,,\n", "line 3: name one is in line 2 already"),
        ("A1,one,,10.0.0.2/24,,\nA2,two,,10.0.0.2/24,,\n", "line 3: address 10.0.0.2 is in line 2 already"),
        ("A1,One!,,,,\n", "line 2: name 'One!', allowed: 1 to 40 of a-z 0-9 -"),
        ("A1,one,,10.0.0.2/24,10.0.1.1,\n", "line 2: gateway 10.0.1.1 is not in 10.0.0.0/24"),
        ("A1,one,,10.0.0.2,,\n", "line 2: address '10.0.0.2' needs a prefix length, as in 10.0.0.2/24"),
        ("A1,one,,10.0.0.255/24,,\n", "line 2: 10.0.0.255 cannot be the address of a box in 10.0.0.0/24"),
        ("A1,one,,\n", "line 2: 4 cells, the header has 6"),
        (
            "A1,one,,10.0.0.900/24,,\n",
            "line 2: address '10.0.0.900/24': an address is written as 10.1.2.3/24 or dhcp, a gateway as 10.1.2.1",
        ),
        ("\n,,,,,\n", "no line below the header: write a line for each box"),
    ],
)
def test_what_cannot_be_right_is_named_with_its_line(body: str, expected: str) -> None:
    assert expected in errors_of(CSV + body)


def test_a_column_that_does_not_exist_names_the_one_that_was_meant() -> None:
    assert "line 1: unknown column 'adress', did you mean 'address'?" in errors_of("serial,name,adress\nA1,one,dhcp\n")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("serial,name\r\nA1,one\r\n".encode("utf-16"), "line 1: byte 0xff is not UTF-8: save the file as CSV UTF-8"),
        (
            "serial;name;site\r\nA1;one;Wärme\r\n".encode("cp1252"),
            "line 2: byte 0xe4 is not UTF-8: save the file as CSV UTF-8",
        ),
    ],
)
def test_a_file_in_another_encoding_names_the_line_and_what_to_save(data: bytes, error: str) -> None:
    with pytest.raises(ProvisioningError) as caught:
        text_of(data)
    assert (caught.value.code, caught.value.text) == ("E401", error)


def test_any_line_ending_of_a_spreadsheet_separates_lines() -> None:
    for ending in ("\n", "\r\n", "\r"):
        assert [row.name for row in read_rows(text_of(ending.join(["serial,name", "A1,one", ""]).encode()))] == ["one"]


def test_connected_boxes_that_no_line_is_for_are_known(tmp_path: Path) -> None:
    fleet = FleetRun(read_rows("serial,name\nA2,two\n,one\n"), {2: "a", 3: "b"}, tmp_path, BENCH.fleet_secret)
    assert fleet.left({"A1": "p1", "A2": "p2", "A3": "p3", "A4": "p4"}) == ["A3", "A4"]


def test_all_errors_of_a_file_come_at_once() -> None:
    assert len(errors_of("serial,name,colour\nA,X,red\nA,X,red\n")) == 5


def test_boxes_are_assigned_by_serial_and_rows_without_one_take_the_next_free(tmp_path: Path) -> None:
    rows = read_rows("serial,name\nB2,two\n,any-1\n,any-2\nB9,nine\n")
    fleet = FleetRun(rows, {row.line: str(row.line) for row in rows}, tmp_path, BENCH.fleet_secret)
    pairs = fleet.assign({"B2": "p2", "B1": "p1", "B3": "p3", "B4": "p4"})
    assert [(row.name, port, serial) for row, port, serial in pairs] == [
        ("two", "p2", "B2"),
        ("any-1", "p1", "B1"),
        ("any-2", "p3", "B3"),
    ]


class PowerCut(Exception):
    """Somebody trips over the bench's plug."""


@pytest.mark.slow
async def test_fifty_boxes_from_one_file_interrupted_and_run_again_end_the_same(tmp_path: Path) -> None:
    count = 50
    body = "".join(f"RBX-{n:04d},press-{n:03d},Hall,10.0.{n}.2/24,10.0.{n}.1,64\n" for n in range(1, count + 1))
    rows = read_rows(CSV + body)
    applied: list[str] = []
    started = 0

    async def box_at(listener: trio.SocketListener, number: int) -> None:
        box = folder_box(tmp_path / f"box-{number}", f"RBX-{number:04d}")
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                nursery.start_soon(serve_device, StreamLine(stream, "box"), box)

    def config_of(row: FleetRow) -> bytes:
        return f'[box]\nname = "{row.name}"\n'.encode()

    prints = {row.line: row.fingerprint(config_of(row), "") for row in rows}

    async def work(port: str, serial: str, row: FleetRow) -> ProvisioningResult:
        nonlocal started
        started += 1
        if started == 20:
            raise PowerCut
        wanted = DesiredState(config=config_of(row), network=row.network, row=prints[row.line])

        async def talk_to(talk: BenchConversation, identity: dict[str, object]) -> ProvisioningResult:
            return await provision(talk, identity, BENCH, wanted)

        outcome = await keep_trying(port, talk_to, serial=serial)
        applied.append(serial)
        return outcome

    async with trio.open_nursery() as nursery:
        ports = {}
        for number in range(1, count + 1):
            listener, name = await serve_socket()
            ports[f"RBX-{number:04d}"] = name
            nursery.start_soon(box_at, listener, number)
        fleet = FleetRun(rows, prints, tmp_path / "receipts", BENCH.fleet_secret)
        with pytest.RaisesGroup(PowerCut):
            await fleet.run(ports, work, jobs=4, report=lambda result: None)
        first = set(applied)
        assert 10 <= len(first) < count
        results = await fleet.run(ports, work, jobs=4, report=lambda result: None)
        assert {one.state for one in results} == {"done", "skipped"}
        assert sum(one.state == "skipped" for one in results) >= len(first) - 4  # those cut off before their receipt
        before = len(applied)
        again = await fleet.run(ports, work, jobs=4, report=lambda result: None)
        assert [one.state for one in again] == ["skipped"] * count
        assert len(applied) == before
        nursery.cancel_scope.cancel()
    for number in range(1, count + 1):
        serial = f"RBX-{number:04d}"
        receipt = load_receipt(tmp_path / "receipts", serial)
        assert receipt is not None
        assert receipt_fits(box_secret(BENCH.fleet_secret, serial), receipt)
        assert receipt["settings"]["box.name"] == f'"press-{number:03d}"'


async def test_a_changed_row_or_a_forged_receipt_is_provisioned_again(tmp_path: Path) -> None:
    rows = read_rows("serial,name\nB1,one\n")
    secret = box_secret(BENCH.fleet_secret, "B1")
    box = folder_box(tmp_path / "box", "B1")
    box.claim({"owner_id": "acme", "secret": secret})
    (tmp_path / "receipts").mkdir()
    from provisioning.flow import save_receipt

    def fleet(fingerprint: str) -> FleetRun:
        return FleetRun(rows, {2: fingerprint}, tmp_path / "receipts", BENCH.fleet_secret)

    receipt = box.receipt({"row": "as it is"})
    save_receipt(tmp_path / "receipts", receipt)
    assert fleet("as it is").done_rows() == {2: "B1"}
    assert fleet("another").done_rows() == {}
    save_receipt(tmp_path / "receipts", receipt | {"version": "9.9.9"})
    assert fleet("as it is").done_rows() == {}
    await trio.lowlevel.checkpoint()


async def test_one_box_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    rows = read_rows("serial,name\nB1,one\nB2,two\nB3,three\n")
    seen: list[RowResult] = []

    async def work(port: str, serial: str, row: FleetRow) -> ProvisioningResult:
        await trio.lowlevel.checkpoint()
        if serial == "B1":
            raise ProvisioningError("E501", "self-test failed: pull")
        return ProvisioningResult(serial, "known", [])

    fleet = FleetRun(rows, {2: "a", 3: "b", 4: "c"}, tmp_path, BENCH.fleet_secret)
    results = await fleet.run({"B1": "p", "B2": "q"}, work, jobs=2, report=seen.append)
    assert [(one.state, one.text[:4]) for one in results] == [("failed", "E501"), ("done", ""), ("failed", "E101")]
    assert len(seen) == 3


async def test_a_receipt_that_cannot_be_kept_fails_its_row_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts/B1.new").mkdir()

    async def work(port: str, serial: str, row: FleetRow) -> ProvisioningResult:
        await trio.lowlevel.checkpoint()
        return ProvisioningResult(serial, "known", [], {"serial": serial})

    fleet = FleetRun(read_rows("serial,name\nB1,one\nB2,two\n"), {2: "a", 3: "b"}, tmp_path / "receipts", b"")
    results = await fleet.run({"B1": "p", "B2": "q"}, work, jobs=2, report=lambda _: None)
    assert [(one.state, one.text[:4]) for one in results] == [("failed", "E401"), ("done", "")]
    assert (tmp_path / "receipts/B2.json").exists()

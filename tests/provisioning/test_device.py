"""Box and bench over two real pseudo terminals, with everything a cable can do in between. Seeds are in the tests."""

import errno
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from provisioning.box import Box, DeviceActions
from provisioning.device import MOST_WORKS, _failed
from provisioning.errors import LinkLost, ProvisioningError
from provisioning.flow import DesiredState, ProvisioningResult, file_sha256, provision
from provisioning.frame import REQUEST, RESULT, encode_frame
from provisioning.host import Bench, BenchConversation, find, keep_trying
from provisioning.port import open_line
from provisioning.testing import Cable, Faults, folder_box, run_box, signed_bundle
from tests.waiting import until

BENCH = Bench(bytes(range(32)), "acme", "erika")
CONFIG = b'[box]\nname = "press-007"\n[store]\nsegment_mib = 64\n'


async def at_the_cable(cable: Cable, box: Box, during: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_box, cable, box)
        await during()
        nursery.cancel_scope.cancel()


async def talk_to(cable: Cable) -> BenchConversation:
    return BenchConversation(await open_line(cable.name))


async def refused(asked: Awaitable[object]) -> str:
    with pytest.raises(ProvisioningError) as caught:
        await asked
    return caught.value.code


async def test_a_fresh_box_identifies_itself_and_does_nothing_else_for_strangers(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def during() -> None:
        talk = await talk_to(cable)
        identity = await talk.identify()
        assert {key: identity[key] for key in ("proto", "serial", "model", "version", "slot", "claimed", "state")} == {
            "proto": 1,
            "serial": "RBX-0007",
            "model": "x1",
            "version": "1.3.2",
            "slot": "a",
            "claimed": None,
            "state": "ok",
        }
        assert len(identity["nonce"]) == 32
        assert (await talk.request("status"))["state"] == "ok"
        assert "findings" in await talk.request("doctor")
        assert (await talk.request("plan"))["changes"] == []
        for op in ("apply", "put", "reboot", "factory_reset", "baud"):
            assert await refused(talk.request(op, {"rate": 115200})) == "E201"
        await talk.own(identity, BENCH)
        identity = await talk.identify()  # a new session: no rights any more
        assert identity["claimed"] == "acme"
        assert await refused(talk.request("reboot")) == "E203"
        assert await refused(talk.request("claim", {"owner_id": "me", "secret": bytes(32)})) == "E202"
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


async def test_another_fleet_secret_is_refused_and_its_owner_named(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        identity = await talk.identify()
        with pytest.raises(ProvisioningError, match=r"E202.* root removes /etc/rocketbox/owner on the box"):
            await talk.own(identity, Bench(b"x" * 32, "mallory"))
        (tmp_path / "box/etc/rocketbox/owner").unlink()
        assert (await talk.identify())["claimed"] is None, "whoever has a new secret may claim it"
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


async def provisioned(cable: Cable, wanted: DesiredState, lost: list[str] | None = None) -> ProvisioningResult:
    async def work(talk: BenchConversation, identity: dict[str, object]) -> ProvisioningResult:
        return await provision(talk, identity, BENCH, wanted)

    return await keep_trying(cable.name, work, lost=(lost if lost is not None else []).append)


def wanted_for(tmp_path: Path, box: Box, *, size: int = 20_000) -> DesiredState:
    return DesiredState(
        config=CONFIG,
        keys={"acme.pub": b"key"},
        network={"address": "10.1.2.3/24", "gateway": "10.1.2.1", "dns": "10.1.2.1"},
        bundle=signed_bundle(tmp_path, box, size=size),
        version="1.4.0",
    )


@pytest.mark.slow
async def test_a_box_goes_from_unclaimed_to_a_sealed_receipt(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def during() -> None:
        wanted = wanted_for(tmp_path, box)
        outcome = await provisioned(cable, wanted)
        assert outcome.owned == "claimed"
        assert {"set box.name = 'press-007'", "version 1.3.2 → 1.4.0", "key acme.pub"} <= set(outcome.changes)
        receipt = outcome.receipt or {}
        assert (receipt["version"], receipt["slot"], receipt["user"]) == ("1.4.0", "b", "erika")
        assert (outcome.verified or {})["selftest"]["ok"] is True
        assert box.files.config.read_bytes() == CONFIG
        assert "Address=10.1.2.3/24" in box.files.network.read_text()
        assert box.files.owner.stat().st_mode & 0o777 == 0o600
        again = await provisioned(cable, wanted)
        assert again.changes == []

    await at_the_cable(cable, box, during)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        Faults(seed=11, flip=0.0002),
        Faults(seed=12, lose=0.0002),
        Faults(seed=13, console_every=3000),
        Faults(seed=14, flip=0.0001, lose=0.0001, console_every=8000),
    ],
    ids=["flipped bits", "lost bytes", "console text", "all of it"],
)
async def test_a_noisy_cable_costs_time_and_nothing_else(
    tmp_path: Path, faults: Faults, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.1  # the kernel carries bytes from end to end
    cable, box = Cable(tmp_path, faults), folder_box(tmp_path / "box")

    async def during() -> None:
        outcome = await provisioned(cable, wanted_for(tmp_path, box, size=30_000))
        assert (outcome.receipt or {})["version"] == "1.4.0"

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_9600_baud_is_slow_but_works(tmp_path: Path, autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.1
    cable, box = Cable(tmp_path, Faults(baud=9600)), folder_box(tmp_path / "box")
    wanted = wanted_for(tmp_path, box, size=6000)

    async def work(talk: BenchConversation, identity: dict[str, object]) -> ProvisioningResult:
        return await provision(talk, identity, BENCH, wanted)

    async def during() -> None:
        began_s = trio.current_time()
        outcome = await keep_trying(cable.name, work, baud=9600)
        assert (outcome.receipt or {})["version"] == "1.4.0"
        assert trio.current_time() - began_s > 5

    await at_the_cable(cable, box, during)


@pytest.mark.slow
@pytest.mark.parametrize("cut_after", [200, 3000, 15_000, 21_000])
async def test_a_pulled_cable_continues_where_it_was(tmp_path: Path, cut_after: int) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    cable.cut_after = cut_after
    lost: list[str] = []

    class Replug(list[str]):
        def append(self, text: str) -> None:
            lost.append(text)
            if not os.path.exists(cable.name):
                cable.plug()

    async def during() -> None:
        wanted = wanted_for(tmp_path, box)
        outcome = await provisioned(cable, wanted, Replug())
        assert (outcome.receipt or {})["version"] == "1.4.0"
        assert lost
        assert cable.carried < cut_after + 40_000  # nothing that had arrived was sent again

    await at_the_cable(cable, box, during)


async def test_an_upload_resumes_for_another_bench_after_the_box_was_restarted(tmp_path: Path) -> None:
    box = folder_box(tmp_path / "box")
    path = signed_bundle(tmp_path, box)
    sha256, size = file_sha256(path), path.stat().st_size

    async def first() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        opened = await talk.request("put", {"kind": "bundle", "sha256": sha256, "size": size})
        for at in range(0, 5 * 1024, 1024):
            await talk.line.send(encode_frame([4, opened["t"], at, path.read_bytes()[at : at + 1024]]))
        await talk.request("status")
        await talk.line.aclose()

    async def second() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        opened = await talk.request("put", {"kind": "bundle", "sha256": sha256, "size": size})
        assert opened["have"] == 5 * 1024
        with path.open("rb") as source:
            await talk.put("bundle", source, sha256, size)
        assert (box.files.incoming / sha256).read_bytes() == path.read_bytes()
        await talk.line.aclose()

    (tmp_path / "one").mkdir()
    cable = Cable(tmp_path / "one")
    await at_the_cable(cable, box, first)
    (tmp_path / "two").mkdir()
    cable = Cable(tmp_path / "two")
    await at_the_cable(cable, Box(tmp_path / "box"), second)


async def test_a_bundle_with_a_wrong_signature_changes_nothing(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    (tmp_path / "mallory").mkdir()

    async def during() -> None:
        signed_bundle(tmp_path, box)
        foreign = DesiredState(bundle=signed_bundle(tmp_path / "mallory"), version="1.4.0")
        with pytest.raises(
            ProvisioningError, match=r"E303 the signature of the bundle matches none .*: use a bundle sign"
        ):
            await provisioned(cable, foreign)
        assert box.files.slots.load().trial is None
        assert box.files.slots.running() == "a"

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_a_bundle_is_refused_before_its_upload(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    (tmp_path / "mallory").mkdir()

    async def during() -> None:
        foreign, good = signed_bundle(tmp_path / "mallory", size=200_000), signed_bundle(tmp_path, box, size=200_000)
        assert await refused(provisioned(cable, DesiredState(bundle=foreign, version="1.4.0"))) == "E303"
        assert cable.carried < 20_000
        assert list(box.files.incoming.iterdir()) == []  # a head that was damaged on the way would be refused for ever
        box.model = "x2"
        assert await refused(provisioned(cable, DesiredState(bundle=good, version="1.4.0"))) == "E304"
        assert cable.carried < 40_000
        box.model = "x1"
        outcome = await provisioned(cable, DesiredState(bundle=good, version="1.4.0"))
        assert (outcome.receipt or {})["version"] == "1.4.0"

    await at_the_cable(cable, box, during)


async def test_a_wrong_configuration_is_refused_with_all_its_errors_before_anything_is_touched(tmp_path: Path) -> None:
    box = folder_box(
        tmp_path / "box", hands=DeviceActions(check_config=lambda text: ["store.x: unknown", "box.y: unknown"])
    )
    cable = Cable(tmp_path)

    async def during() -> None:
        with pytest.raises(ProvisioningError) as caught:
            await provisioned(cable, DesiredState(config=CONFIG, keys={"k": b"1"}))
        assert (caught.value.code, caught.value.facts["errors"]) == ("E401", ["store.x: unknown", "box.y: unknown"])
        assert not box.files.config.exists()
        assert not box.files.keys.exists()

    await at_the_cable(cable, box, during)


async def test_a_failed_self_test_names_its_step(tmp_path: Path) -> None:
    hands = DeviceActions(selftest=lambda: {"ok": False, "failed": "pull: not what was produced"})
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box", hands=hands)

    async def during() -> None:
        with pytest.raises(ProvisioningError, match="pull: not what was produced") as caught:
            await provisioned(cable, DesiredState(config=CONFIG))
        assert (caught.value.code, caught.value.exit_status) == ("E501", 7)

    await at_the_cable(cable, box, during)


async def test_what_was_written_but_not_started_is_started_by_the_next_run(tmp_path: Path) -> None:
    started: list[str] = []

    def activate(progress: object) -> None:
        started.append("try")
        if len(started) == 1:
            raise OSError("power cut")

    cable, box = Cable(tmp_path), folder_box(tmp_path / "box", hands=DeviceActions(activate=activate))

    async def during() -> None:
        assert await refused(provisioned(cable, DesiredState(config=CONFIG))) == "E501"
        outcome = await provisioned(cable, DesiredState(config=CONFIG))
        assert (outcome.changes, len(started)) == ([], 2)
        await provisioned(cable, DesiredState(config=CONFIG))
        assert len(started) == 2

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_both_ends_speed_up_and_return_when_the_new_rate_proves_nothing(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        assert await talk.speed_up(921600) == 921600
        assert (cable.box_line.baud, talk.line.baud) == (921600, 921600)
        await talk.request("time", {"time": 1})  # the rights survived the switch
        await talk.request("baud", {"rate": 3000000})
        await until(lambda: cable.box_line.baud == 3000000)
        await until(lambda: cable.box_line.baud == 921600)  # the bench says nothing at the new rate
        assert await refused(talk.request("baud", {"rate": 1234})) == "E104"
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_a_session_ends_after_a_minute_of_silence_and_is_taken_up_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        mock_clock.jump(61)
        assert await refused(talk.request("reboot")) == "E204"
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


async def test_a_repeated_request_is_carried_out_once(tmp_path: Path) -> None:
    reboots: list[str] = []
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box", hands=DeviceActions(reboot=reboots.append))

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        frame = encode_frame([REQUEST, 4_000_000_000, "reboot", {}])
        for _ in range(3):
            await talk.line.send(frame)
            assert await talk._answer(4_000_000_000, 2) == [2, 4_000_000_000, {}]
        assert len(reboots) == 1
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


async def test_of_thousands_of_requests_at_once_a_few_are_taken_and_the_line_answers_on(tmp_path: Path) -> None:
    asked, go = list[int](), threading.Event()

    def status() -> dict[str, str]:
        asked.append(1)
        assert go.wait(60)
        return {"state": "ok"}

    cable, box = Cable(tmp_path), folder_box(tmp_path / "box", hands=DeviceActions(status=status))

    async def during() -> None:
        talk = await talk_to(cable)
        for first in range(1, 3001, 100):
            await talk.line.send(b"".join(encode_frame([REQUEST, n, "status", {}]) for n in range(first, first + 100)))
        last = await answer_to(talk, encode_frame([REQUEST, 4_000_000_000, "status", {}]), go)
        assert last == [RESULT, 4_000_000_000, {"state": "ok"}]
        assert len(asked) <= MOST_WORKS + 1
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


async def answer_to(talk: BenchConversation, frame: bytes, go: threading.Event) -> object:
    """Ask again until there is an answer, as a bench does, and let the box work meanwhile."""
    with trio.fail_after(60):
        while True:
            await talk.line.send(frame)
            answer = await talk._answer(4_000_000_000, 0.2)
            if answer is not None:
                return answer
            go.set()


@pytest.mark.slow
async def test_a_support_archive_comes_back_whole_over_a_lossy_line(tmp_path: Path, autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.1
    blob = os.urandom(30_000)
    hands = DeviceActions(support=lambda path: path.write_bytes(blob))
    cable = Cable(tmp_path, Faults(seed=5, lose=0.0001))
    box = folder_box(tmp_path / "box", hands=hands)
    box.files.state.mkdir(parents=True, exist_ok=True)

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        await talk.get("support", tmp_path / "support.tar.gz")
        assert (tmp_path / "support.tar.gz").read_bytes() == blob
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


@pytest.mark.parametrize("keep_data", [True, False])
async def test_a_factory_reset_forgets_owner_and_settings_and_keeps_the_factorys_own(
    tmp_path: Path, keep_data: bool
) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    (box.files.state / "store/commitlog").mkdir(parents=True)
    box.files.config.write_bytes(CONFIG)

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        await talk.request("factory_reset", {"keep_data": keep_data})
        identity = await talk.identify()
        assert (identity["claimed"], identity["serial"], identity["name"]) == (None, "RBX-0007", "")
        assert (box.files.state / "store").exists() == keep_data
        await talk.line.aclose()

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_a_port_where_nobody_answers_and_a_noisy_one_are_told_apart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.1
    (tmp_path / "silent").mkdir()
    (tmp_path / "noisy").mkdir()
    silent, noisy = Cable(tmp_path / "silent"), Cable(tmp_path / "noisy", Faults(seed=3, flip=0.05))
    box = folder_box(tmp_path / "box")
    assert await refused(find([silent.name])) == "E101"

    async def during() -> None:
        assert await refused(find([noisy.name])) in ("E104", "E101")

    await at_the_cable(noisy, box, during)


async def test_two_boxes_are_listed_and_a_serial_number_chooses(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    cables = [Cable(tmp_path / "one"), Cable(tmp_path / "two")]
    boxes = [folder_box(tmp_path / f"box-{at}", f"RBX-000{at}") for at in (1, 2)]
    names = [cable.name for cable in cables]
    async with trio.open_nursery() as nursery:
        for cable, box in zip(cables, boxes, strict=True):
            nursery.start_soon(run_box, cable, box)
        with pytest.raises(ProvisioningError, match=r"RBX-0001 at .*RBX-0002 at ") as caught:
            await find(names)
        assert caught.value.code == "E102"
        assert (await find(names, serial="RBX-0002")).port == names[1]
        with pytest.raises(ProvisioningError, match=r"E101 RBX-0001 at .*RBX-0002 at .* not RBX-0003: .*right box"):
            await find(names, serial="RBX-0003")
        nursery.cancel_scope.cancel()


async def test_a_bench_without_an_adapter_is_told_so() -> None:
    with pytest.raises(ProvisioningError, match="E101 there is no USB serial adapter"):
        await find([])


def test_a_full_disk_of_the_box_is_no_failed_self_test() -> None:
    full = _failed("apply", OSError(errno.ENOSPC, "No space left on device", "/etc/rocketbox/rocketbox.toml"))
    assert (full.code, full.exit_status) == ("E301", 5)
    assert "apply: the disk of the box is full at /etc/rocketbox/rocketbox.toml: free space on it" in full.text
    assert _failed("apply", OSError(errno.EIO, "Input/output error")).code == "E501"


async def test_another_box_than_the_wanted_one_is_left_alone(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def work(talk: BenchConversation, identity: dict[str, object]) -> None:
        raise AssertionError("must not be reached")

    async def during() -> None:
        assert await refused(keep_trying(cable.name, work, serial="RBX-0001")) == "E402"

    await at_the_cable(cable, box, during)


@pytest.mark.slow
async def test_hours_of_work_between_two_losses_do_not_count_as_absence(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.1
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    lost: list[str] = []
    visits = 0

    async def plug_again() -> None:
        await trio.sleep(2)
        cable.plug()

    async def during() -> None:
        async with trio.open_nursery() as nursery:

            async def work(talk: BenchConversation, identity: dict[str, object]) -> str:
                nonlocal visits
                visits += 1
                if visits < 3:
                    await trio.sleep(3600 * (visits - 1))
                    cable.pull()
                    nursery.start_soon(plug_again)
                await talk.request("status")
                return "done"

            assert await keep_trying(cable.name, work, lost=lost.append) == "done"

    await at_the_cable(cable, box, during)
    assert visits == 3
    assert len(lost) > 2  # two losses, and looks for the box meanwhile


async def test_a_dry_run_shows_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")

    async def work(talk: BenchConversation, identity: dict[str, object]) -> ProvisioningResult:
        return await provision(talk, identity, BENCH, DesiredState(config=CONFIG), dry_run=True)

    async def during() -> None:
        outcome = await keep_trying(cable.name, work)
        assert (outcome.receipt, outcome.owned) == (None, "would be claimed")
        assert "set box.name = 'press-007'" in outcome.changes
        assert not box.files.owner.exists()

    await at_the_cable(cable, box, during)


async def test_the_box_goes_away_when_its_line_does(tmp_path: Path) -> None:
    from provisioning.device import Device

    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    os.close(cable._box_end)
    with trio.fail_after(25), pytest.RaisesGroup(LinkLost, flatten_subgroups=True):
        await Device(cable.box_line, box).run()


@pytest.mark.slow
async def test_an_owner_installs_rolls_back_and_releases_and_a_senseless_wish_costs_its_answer_alone(
    tmp_path: Path,
) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    left: list[str] = []
    box.hands = replace(box.hands, activate=lambda progress: None, leave_safe=lambda: left.append("safe"))
    bundle = signed_bundle(tmp_path, box, size=20_000)
    sha256 = file_sha256(bundle)

    async def during() -> None:
        talk = await talk_to(cable)
        await talk.own(await talk.identify(), BENCH)
        for op, wish, code in (
            ("get", {"kind": "shadow"}, "E105"),
            ("install", {"sha256": "../../etc/passwd"}, "E303"),
            ("install", {"sha256": sha256}, "E303"),  # not there yet
            ("plan", {"bundle": "x"}, "E401"),
            ("put", {"sha256": sha256, "size": 1 << 40}, "E301"),
            ("put", {"sha256": sha256, "size": "many"}, "E501"),
            ("time", {}, "E501"),
        ):
            assert await refused(talk.request(op, wish)) == code, (op, wish)
        with bundle.open("rb") as source:
            await talk.put("bundle", source, sha256, bundle.stat().st_size)
        assert await talk.request("install", {"sha256": sha256}) == {"slot": "b"}
        assert await refused(talk.request("install", {"sha256": sha256})) == "E306"  # one is on trial
        assert await refused(talk.request("commit")) == "E306"  # and does not run yet
        gone = await talk.request("rollback", {"reason": "second thoughts"})
        assert gone == {"slot": "a", "version": "1.3.2", "bad": ["1.4.0"]}
        assert await talk.request("commit") == {"slot": "a", "version": "1.3.2"}
        assert await refused(talk.request("install", {"sha256": sha256})) == "E305"  # it was rolled back
        assert await talk.request("safe_leave") == {}
        assert await talk.request("release") == {}
        assert await refused(talk.request("reboot")) in ("E201", "E203")
        assert (await talk.identify())["claimed"] is None
        await talk.line.aclose()

    await at_the_cable(cable, box, during)
    assert left == ["safe"]
    assert not box.files.keys.exists()


async def test_a_box_whose_slots_cannot_be_read_says_so_on_the_line(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    for name in ("state.json", "state.json.old"):
        (tmp_path / "box/opt/slots" / name).write_text("[")

    async def during() -> None:
        talk = await talk_to(cable)
        with pytest.raises(ProvisioningError, match=r"E501 identify failed on the box: SlotError.*is damaged"):
            await talk.identify()
        assert (await talk.request("status"))["state"] == "ok"
        await talk.line.aclose()

    await at_the_cable(cable, box, during)

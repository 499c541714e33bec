"""Access keys of the leader are at the other boxes, whole and private, or are told not to be."""

import json
from pathlib import Path

import pytest
import trio

from appliance.access.access import changing, load_accounts
from appliance.broker.access.accounts import Account, Accounts
from appliance.group import account_copies
from appliance.group.account_copies import AccountCopies
from appliance.group.links.frames import ACCOUNTS, LinkFrameDecoder
from tests.waiting import until


class Line:
    """A link that keeps what it is given."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)

    def data(self) -> bytes:
        [frame] = LinkFrameDecoder(most_record_bytes=1 << 20, with_bytes=frozenset({ACCOUNTS})).feed(self.frames[-1])
        return frame.data


def write(path: Path, *names: str) -> None:
    with changing(path) as replace:
        replace(Accounts({name: Account(name, "12345678") for name in names}))


async def test_a_change_of_the_leaders_keys_is_at_the_others_and_who_comes_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_copies, "LOOK_S", 0.01)
    here, there = tmp_path / "a.json", tmp_path / "b" / "accounts.json"
    leader, follower, line, other = AccountCopies(here), AccountCopies(there), Line(), Line()
    linked = {"b": line}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.run, linked.items)
        write(here, "press-17")
        await until(lambda: len(line.frames) == 1)
        await follower.take(line.data())
        assert there.stat().st_mode & 0o777 == 0o600
        assert load_accounts(there).to_object() == load_accounts(here).to_object()
        write(here, "press-17", "more-keys")
        await until(lambda: len(line.frames) == 2)
        linked["c"] = other
        await until(lambda: len(other.frames) == 1)
        assert other.data() == line.data()
        nursery.cancel_scope.cancel()
    before = there.stat().st_ino
    await follower.take(there.read_bytes())
    assert there.stat().st_ino == before, "what is here already is not written again"


async def test_a_file_that_is_as_it_was_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, parsed = tmp_path / "accounts.json", list[bytes]()
    write(path, "press-17")
    copies = AccountCopies(path)
    fits = copies._fits

    def noted(data: bytes) -> bool:
        parsed.append(data)
        return fits(data)

    monkeypatch.setattr(copies, "_fits", noted)
    for _ in range(3):
        assert copies._read() is not None
    assert len(parsed) == 1
    path.write_bytes(b"[]")
    assert [copies._read(), copies._read()] == [None, None]
    assert len(parsed) == 2


async def test_what_cannot_be_keys_changes_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "accounts.json"
    write(path, "press-17")
    before = path.read_bytes()
    copies = AccountCopies(path)
    for wrong in (b"", b"[]", b"{" * 100_000, json.dumps({"accounts": 7}).encode(), b"x" * (1 << 20) + b"x"):
        await copies.take(wrong)
    assert path.read_bytes() == before
    assert "accounts_not_copied" in caplog.text

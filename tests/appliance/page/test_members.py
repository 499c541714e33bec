"""The card of a group says in words who takes the messages and what each member has, as far as this box knows."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.page.members import MemberLine, group_card
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.appliance.group.hand_driven import HandGroup
from tests.appliance.group.real_group import RealMember, start, wait_for
from tests.appliance.metrics.test_gather import fetched
from tests.appliance.page.browser import CHROMIUM, Browser, open_browser
from tests.interop.box import Child
from tests.ports import free_port

AT = {
    "address": "10.1.0.9:10912",
    "connected": True,
    "witness": False,
    "learner": False,
    "behind_bytes": 0,
    "refuses": "",
}
A, B = ({**AT, "member": name, "behind_s": 0.0} for name in "ab")
W = {**A, "member": "w", "witness": True}
LEADS: dict[str, Any] = {"member": "a", "leader": "a", "serves": True, "members": [A, B, W]}


def texts(told: dict[str, Any]) -> list[str]:
    return [each.text for each in group_card(told).lines]


def test_a_leader_tells_what_the_others_have() -> None:
    card = group_card(
        {**LEADS, "members": [A, {**B, "behind_bytes": 3 << 20, "behind_s": 12.0, "refuses": "its disk is full"}, W]}
    )
    assert (card.tag, card.level, card.copies) == ("leader", "good", "")
    assert card.lines[1] == MemberLine("Box b", "10.1.0.9", "3 MiB and 12 s behind: its disk is full", "warn")
    assert [each.text for each in card.lines][::2] == [
        "leads, has everything",
        "connected; it votes and has no messages",
    ]
    away = texts({**LEADS, "members": [A, {**B, "learner": True}, {**W, "connected": False}]})
    assert away[1:] == ["has everything, does not vote yet", "not connected; if a box fails now, nobody leads"]
    silent = {**B, "behind_bytes": None, "behind_s": None}
    assert texts({**LEADS, "members": [A, silent]})[1] == "connected; what it has is not known yet"
    assert texts({**LEADS, "members": [A, {**B, "connected": False}]})[1].endswith("what it lacks once it is back")


def test_a_member_whose_address_nobody_knows_yet_is_a_line_too() -> None:
    assert group_card({**LEADS, "members": [A, {**B, "address": ""}]}).lines[1].address == ""


def test_a_follower_tells_of_itself_and_not_what_it_cannot_know() -> None:
    c = {**B, "member": "c"}
    told = {**LEADS, "member": "b", "leader": "a", "serves": False, "members": [A, B, c]}
    assert texts(told) == ["leads", "has everything", "connected"]
    assert group_card(told).sentence.startswith("a takes the messages. This box, b, has a copy")


def test_without_a_leader_the_card_says_what_has_to_be_there() -> None:
    card = group_card({**LEADS, "leader": "", "serves": False})
    assert (card.tag, card.level) == ("no leader", "bad")
    assert "until 2 of a, b, w reach one another" in card.sentence
    assert card.lines[0].text == "runs"
    pair = group_card({**LEADS, "leader": "", "serves": False, "members": [A, {**B, "connected": False}]})
    assert "`rocketbox replica promote` on the one that is to" in pair.sentence
    assert group_card({**LEADS, "serves": False}).tag == "not ready"
    lacks = group_card({**LEADS, "copies": 2, "copies_there": 1})
    assert (lacks.tag, lacks.level, lacks.copies) == ("copies are missing", "bad", "2 wanted, 1 there")
    assert lacks.sentence.endswith("sends are refused: a message is to be on 2 disks.")


@pytest.mark.slow
async def test_the_page_of_a_member_opens_whether_it_leads_or_not(tmp_path: Path) -> None:
    group, port = HandGroup(), free_port()
    async with group.box("a", tmp_path / "a", f"[page]\nport = {port}\n"):
        for leader, said in (("", "Nobody takes messages"), ("a", "This box, a, takes all messages")):
            group.lead(leader)
            with trio.fail_after(60):
                while True:
                    with suppress(OSError):  # no port is open between two standings
                        code, text = await fetched(f"http://127.0.0.1:{port}/")
                        assert code == 200, text
                        if said in text:
                            assert ("2 wanted, 2 there" in text) == bool(leader), "only a leader knows what is there"
                            break
                    await trio.sleep(0.1)


async def pictured(browser: Browser, url: str, folder: Path, name: str, said: str) -> None:
    """Open the page until the card says something; keep a picture, on a desk and on a phone."""
    with trio.fail_after(60):
        while True:
            await browser.open(url)
            if said in str(await browser.ask("document.querySelector('#replication')?.innerText")):
                break
            await trio.sleep(0.2)
    (folder / f"{name}.png").write_bytes(await browser.picture())
    await browser.open(url, width=390, height=844)
    (folder / f"{name}-phone.png").write_bytes(await browser.picture())
    assert await browser.ask("document.documentElement.scrollWidth") <= 390
    assert browser.complaints == []


@pytest.mark.soak
@needs_openssl
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")
async def test_leader_follower_and_a_lost_witness_in_a_real_browser(tmp_path: Path) -> None:
    boxes, pages = [RealMember(tmp_path / name) for name in "ab"], [free_port(), free_port()]
    listed = [f"{each.name}=127.0.0.1:{each.broker_port + 1}" for each in boxes]
    listed.append(f"w=127.0.0.1:{free_port()} witness")
    for each, port in zip(boxes, pages, strict=True):
        each.configure(boxes, f"[page]\nport = {port}\n", elections="automatic")
        file = tmp_path / f"{each.name}.toml"
        text = file.read_text().partition("members = [")
        file.write_text(f"{text[0]}members = {listed!r}\n{text[2].partition(chr(10))[2]}")
    words = ["-m", "appliance", "witness", "--group", "press", "--as", "w", "--data", str(tmp_path / "w")]
    words += ["--certs", str(certificates() / "w"), "--timing", "0.5"]
    witness = Child([*words, *(word for each in listed for word in ("--member", each))], tmp_path / "w.log")
    try:
        witness.start()
        await start(*boxes)
        async with open_browser(tmp_path / "profile") as browser:
            leader = 0
            with trio.fail_after(60):
                while not await boxes[leader].serves():
                    leader = 1 - leader
            await wait_for(boxes[1 - leader], leader=boxes[leader].name)
            urls = [f"http://127.0.0.1:{port}/" for port in pages]
            await pictured(browser, urls[leader], tmp_path, "leader", "takes all messages")
            await pictured(browser, urls[1 - leader], tmp_path, "follower", "takes the messages. This box")
            witness.kill()
            await pictured(browser, urls[leader], tmp_path, "witness-lost", "not connected")
            boxes[leader].kill()
            await pictured(browser, urls[1 - leader], tmp_path, "no-leader", "Nobody takes messages")
    finally:
        for child in (witness, *boxes):
            if child.running:
                child.kill()

"""The status page in a real browser: what it shows on a phone and a desk, that it asks nobody else, who gets in."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from appliance.access.page_token import new_token, read_token
from netstack.serving.channel import Channel, open_channel
from tests.appliance.box import ask, connected, heartbeat, pull, running_box, send
from tests.appliance.page.browser import CHROMIUM, Browser, open_browser
from tests.interop.box import Box as Process
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: sudo make system-packages"),
]
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@asynccontextmanager
async def page(folder: Path, more: str = "") -> AsyncIterator[tuple[str, Channel]]:
    """Run a box that had some traffic; yield the page's address and a client's connection."""
    port = free_port()
    toml = f"[page]\nport = {port}\n{more}"
    async with running_box(folder, toml, "press-17") as box, connected(box) as channel:
        for number in range(12):
            properties = f"KEYS\1cycle-{number}\2UNIQ_KEY\1C0A8000100002A9F000000000000{number:04X}\2TAGS\1cycle"
            body = f'{{"cycle": {number}, "note": "{EVIL if number == 3 else "fine"}"}}'
            await channel.ask(send("press_cycles", body.encode(), properties), timeout_s=5)
        await channel.ask(heartbeat("10.1.1.7@4711", consumers={"mes": {"press_cycles": "*"}}), timeout_s=5)
        await channel.ask(pull("press_cycles", group="mes"), timeout_s=5)
        await channel.ask(ask(15, consumerGroup="mes", topic="press_cycles", queueId=0, commitOffset=5), timeout_s=5)
        yield f"http://localhost:{port}", channel


async def text_of(browser: Browser) -> str:
    return str(await browser.ask("document.body.innerText"))


async def picture(browser: Browser, tmp_path: Path, name: str) -> None:
    """Keep a picture where ROCKETBOX_PICTURES says, else beside the test's other files."""
    folder = Path(os.environ.get("ROCKETBOX_PICTURES", tmp_path))
    png = await browser.picture()
    assert len(png) > 10_000
    await trio.to_thread.run_sync((folder / f"{name}.png").write_bytes, png)


async def test_the_page_fits_a_desk_and_asks_nobody_else(tmp_path: Path) -> None:
    async with page(tmp_path / "data") as (url, _), open_browser(tmp_path / "profile") as browser:
        await browser.open(url + "/", width=1280, height=812)
        text = await text_of(browser)
        for word in ("press-17", "Messages in", "press_cycles", "mes", "10.1.1.7@4711", "Disk", "Recoveries"):
            assert word in text
        for word in ("Processor", "Memory", "Addresses"):
            assert word in text
        await check(browser, url, 1280)
        await picture(browser, tmp_path, "desktop")
        await browser.follow("document.querySelector('.reach a:last-child').click()")
        assert await browser.ask("document.querySelector('.tiles').ariaLabel") == "Rates of the last week"
        asked = "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/now?reach=week'))"
        await browser.wait_for(asked)
        assert browser.complaints == []


async def check(browser: Browser, url: str, width: int) -> None:
    """The page has its curves and its style, is no wider than the screen, and asked nobody but the box."""
    assert await browser.ask("document.querySelectorAll('svg').length") >= 6
    assert await browser.ask("document.documentElement.scrollWidth") <= width
    assert await browser.ask("getComputedStyle(document.querySelector('.card')).borderRadius") == "10px"
    assert [address for address in browser.asked if not address.startswith((url, "data:", "about:"))] == []
    assert browser.complaints == []


async def test_the_page_follows_the_box_and_says_when_it_is_gone(tmp_path: Path) -> None:
    async with open_browser(tmp_path / "profile") as browser:
        async with page(tmp_path / "data") as (url, channel):
            await browser.open(url + "/")
            await browser.ask("document.querySelector('form.search input').value = 'half a word'")
            await channel.ask(send("made_later"), timeout_s=5)
            await browser.wait_for("document.body.innerText.includes('made_later')")
            assert await browser.ask("document.querySelector('form.search input').value") == "half a word"
            assert browser.complaints == []
        await browser.wait_for("document.getElementById('lost').innerText.includes('not answered')")


@contextmanager
def sick(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run a box as users do that lets everybody in, has lost its gateway and was killed once; yield page and data."""
    port = free_port()
    config = f"[box]\nname = 'press-17'\n[page]\nport = {port}\n[access]\nmode = 'open'\n"
    box = Process(folder / "data", uplink=f"127.0.0.1:{free_port()}", config=config)
    box.start()
    try:
        trio.run(sent_to, box.broker_port)
        box.kill()
        box.start()
        words = ["uplink", "discard", "--before", "300", "--reason", "a drill", "--yes", "--data", str(box.data)]
        assert main(words) == 0
        yield f"http://localhost:{port}", box.data
    finally:
        box.kill()


async def sent_to(port: int) -> None:
    async with open_channel("127.0.0.1", port) as channel:
        for _ in range(5):
            assert (await channel.ask(send("press_cycles", b"x" * 100), timeout_s=10)).code == 0


def test_a_phone_shows_what_is_wrong_and_the_next_step(tmp_path: Path) -> None:
    with sick(tmp_path) as (url, data):
        trio.run(look_at_the_sick, tmp_path, url, data)


async def look_at_the_sick(tmp_path: Path, url: str, data: Path) -> None:
    async with open_browser(tmp_path / "profile") as browser:
        await browser.open(url + "/", width=375, height=812)
        await browser.wait_for("document.body.innerText.includes('needs attention')")  # the first verdict takes a while
        text = await text_of(browser)
        for word in ("access.mode is open", "D303", 'Next: set access.mode = "subnet" or "keys"', "not connected"):
            assert word in text
        above = "document.getElementById('groups').getBoundingClientRect().top < document.querySelector('.tiles')"
        assert await browser.ask(f"{above}.getBoundingClientRect().top")  # consumers before rates
        assert await browser.ask("[...document.querySelectorAll('header nav a')].every((each) => each.offsetWidth > 0)")
        assert await browser.ask("(n => n.scrollWidth <= n.clientWidth)(document.querySelector('header nav'))")
        await browser.ask("document.querySelector('#gaps summary').click()")
        text = await text_of(browser)
        assert "operator" in text
        assert "clean" in text[text.index("Recoveries") :]
        await check(browser, url, 375)
        await picture(browser, tmp_path, "phone")
        assert await browser.ask("document.querySelector('button[value=pause]') === null")  # without the token
        await browser.open(url + "/login")
        token = await trio.to_thread.run_sync(read_token, data)
        await browser.follow(f"f = document.forms[0]; f.token.value = '{token}'; f.submit()")
        await browser.follow("document.querySelector('button[value=pause]').click()")
        await browser.wait_for("document.querySelector('#uplink h2').innerText.includes('paused')")
        assert browser.complaints == []


async def test_messages_are_found_by_key_id_and_time_and_shown_as_text(tmp_path: Path) -> None:
    async with page(tmp_path / "data") as (url, _), open_browser(tmp_path / "profile") as browser:
        await browser.open(url + "/messages")
        await browser.ask("document.querySelector('[name=key]').value = 'cycle-3'")
        await browser.follow("document.querySelector('form.search button').click()")
        assert "1 message with the key cycle-3" in await text_of(browser)
        await browser.follow("document.querySelector('td a').click()")
        shown = await text_of(browser)
        assert EVIL.split(">")[0] in shown  # as text
        assert await browser.ask("document.title") != "owned"
        assert await browser.ask("document.querySelectorAll('main img, main script').length") == 0
        offset_id = await browser.ask("document.querySelector('h2 small').innerText")
        for query in (f"id={offset_id}", "id=C0A8000100002A9F0000000000000003", "topic=press_cycles&key=cycle-3"):
            await browser.open(f"{url}/messages?{query}")
            assert "1 message with" in await text_of(browser)
        await browser.open(f"{url}/messages?topic=press_cycles&time=2020-01-01")
        assert "The first 12 stored in press_cycles" in await text_of(browser)
        await browser.open(f"{url}/messages?topic=press_cycles&time=2999-01-01T00:00")
        assert "Nothing stored" in await text_of(browser)
        await browser.open(f"{url}/group?name=mes")
        assert "10.1.1.7@4711" in await text_of(browser)
        assert browser.complaints == []


async def test_another_machine_logs_in_with_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netstack.web.connections.is_loopback", lambda host: False)  # as if this came from elsewhere
    async with page(tmp_path / "data") as (url, _), open_browser(tmp_path / "profile") as browser:
        await browser.open(url + "/", width=375)
        assert "token" in await text_of(browser)
        assert "press_cycles" not in await browser.ask("document.documentElement.outerHTML")
        await browser.follow("f = document.forms[0]; f.token.value = 'guessed'; f.submit()")
        assert "not the token" in await text_of(browser)
        token = await trio.to_thread.run_sync(read_token, tmp_path / "data")
        await browser.follow(f"f = document.forms[0]; f.token.value = '{token}'; f.submit()")
        assert "press_cycles" in await text_of(browser)
        assert await browser.ask("document.cookie") == ""  # scripts cannot read it
        await trio.to_thread.run_sync(new_token, tmp_path / "data")
        await browser.open(url + "/")
        assert "press_cycles" not in await text_of(browser)


async def test_a_change_is_confirmed_in_the_browser(tmp_path: Path) -> None:
    async with page(tmp_path / "data") as (url, channel), open_browser(tmp_path / "profile") as browser:
        await browser.open(url + "/topic?name=press_cycles", width=375)
        assert await browser.ask("document.querySelector('form')") is None  # without the token it only reads
        await browser.open(url + "/login")
        token = await trio.to_thread.run_sync(read_token, tmp_path / "data")
        await browser.follow(f"f = document.forms[0]; f.token.value = '{token}'; f.submit()")
        await browser.open(url + "/create", width=375)
        await browser.follow("f = document.forms[0]; f.elements.name.value = 'orders'; f.requestSubmit()")
        assert "Create the topic orders?" in await text_of(browser)
        await picture(browser, tmp_path, "confirm-phone")
        await browser.follow("document.querySelector('button').click()")
        assert "The topic orders exists, with 8 queues." in await text_of(browser)
        await browser.follow("document.querySelector('a.button').click()")
        await browser.ask("document.querySelector('textarea').value = 'hello'")
        await browser.follow("document.querySelector('textarea').form.requestSubmit()")
        await browser.follow("document.querySelector('button').click()")
        assert "Stored in orders" in await text_of(browser)
        await channel.ask(heartbeat("c1", consumers={"mes": {"orders": "*"}}), timeout_s=5)
        await channel.ask(pull("%RETRY%mes", group="mes"), timeout_s=5)
        sent = await channel.ask(send("%DLQ%mes", b"late", "RETRY_TOPIC\1orders"), timeout_s=5)
        await browser.open(f"{url}/message?at={sent.ext['msgId']}", dark=True)
        await browser.follow("document.querySelector('form.row button').click()")
        await picture(browser, tmp_path, "resend-desktop")
        await browser.follow("document.querySelector('button').click()")
        assert "Stored in %RETRY%mes" in await text_of(browser)
        assert browser.complaints == []

"""A real Chromium without a window, driven over the pipe of its debugging protocol: open, look, ask, take a picture."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
ANSWER_S = 60.0


class Browser:
    """One tab. `complaints` are what the page's console and the security policy reported, `asked` every address."""

    def __init__(self, to: trio.lowlevel.FdStream, answers: trio.lowlevel.FdStream) -> None:
        self._to, self._answers = to, answers
        self._number, self._session, self._rest = 0, "", b""
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._loaded = False

    async def begin(self) -> None:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to one command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        await self._to.send_all(json.dumps(message).encode() + b"\0")
        with trio.fail_after(ANSWER_S):
            while (answer := await self._next()).get("id") != self._number:
                self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    async def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            self._rest += await self._answers.receive_some(1 << 16)
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Log.entryAdded":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a page on a screen of this size and wait until it is there."""
        phone = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        await self.call("Page.navigate", url=url)
        await self.until_loaded()

    async def until_loaded(self) -> None:
        with trio.fail_after(ANSWER_S):
            while not self._loaded:
                self._note(await self._next())

    async def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    async def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        with trio.fail_after(ANSWER_S):
            while not await self.ask(expression):  # noqa: ASYNC110  a browser in another process has no event of ours
                await trio.sleep(0.1)

    async def follow(self, expression: str) -> None:
        """Do what leads to another page and wait for it."""
        self._loaded = False
        await self.ask(f"{expression}; 0")
        await self.until_loaded()

    async def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """Return the browser, where to write commands, where to read answers: its descriptors 3 and 4."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    words = [str(CHROMIUM), *SWITCHES, f"--user-data-dir={folder}", "about:blank"]
    line = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *words]
    with (folder.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(line, pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log)
    os.close(theirs_in)
    os.close(theirs_out)
    return process, ours_out, ours_in


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncIterator[Browser]:
    """Run a Chromium with a profile of its own."""
    process, ours_out, ours_in = await trio.to_thread.run_sync(_start, folder)
    try:
        async with trio.lowlevel.FdStream(ours_out) as to, trio.lowlevel.FdStream(ours_in) as answers:
            browser = Browser(to, answers)
            await browser.begin()
            yield browser
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(process.wait)

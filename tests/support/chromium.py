"""A page in headless Chromium, driven by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import psutil
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from support.external_programs import program

__all__ = ["Page", "chromium", "driven_chromium", "open_page"]

PATIENCE = 30  # seconds; only a hanging browser takes that long
KEYS = {"Enter": "\r"}


@attrs.define(eq=False)
class Page:
    """One page; `problems` has its uncaught exceptions, failed loads and CSP violations."""

    socket: WebSocketConnection
    session: str = ""
    problems: list[str] = attrs.field(factory=list)
    dialogs: list[str] = attrs.field(factory=list)
    """Texts of `alert` and its like."""
    _number: int = 0
    _answers: dict[int, Any] = attrs.field(factory=dict)
    _events: dict[int, trio.Event] = attrs.field(factory=dict)

    async def send(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol."""
        self._number += 1
        number = self._number
        self._events[number] = trio.Event()
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        await self.socket.send_message(json.dumps(message))
        await self._events[number].wait()
        del self._events[number]
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def listen(self) -> None:
        """Take what the browser sends."""
        while True:
            message = json.loads(await self.socket.get_message())
            if "id" in message:
                self._answers[message["id"]] = message
                self._events[message["id"]].set()
                continue
            match message:
                case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                    text = details.get("exception", {}).get("description", details["text"])
                    self.problems.append(text)
                case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                    self.problems.append(f"{entry['text']} {entry.get('url', '')}")
                case {"method": "Page.javascriptDialogOpening", "params": {"message": text}}:
                    self.dialogs.append(text)

    async def go(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        result = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def wait_for(self, expression: str, patience: float = PATIENCE) -> Any:
        """Wait until an expression is true; returns its value."""
        with trio.move_on_after(patience):
            while True:
                with_context = (
                    f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()"
                )
                if value := await self.evaluate(with_context):
                    return value
                await trio.sleep(0.02)
        raise AssertionError(f"not true in {patience} s: {expression}; {self.problems}")

    async def press(self, key: str) -> None:
        """Press and release a key: one character, or a name such as ArrowDown."""
        text = key if len(key) == 1 else KEYS.get(key, "")
        codes = {"key": key, "code": key, "windowsVirtualKeyCode": _CODES.get(key, 0)}
        kind = "keyDown" if text else "rawKeyDown"
        await self.send("Input.dispatchKeyEvent", type=kind, text=text, **codes)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **codes)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def click(self, selector: str, *, pressed: str = "0") -> None:
        """Click with the mouse in the middle of the first such element. `pressed`: an expression,
        evaluated while the button is down."""
        box = await self.wait_for(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        mouse = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        await self.send("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await self.evaluate(pressed)
        await self.send("Input.dispatchMouseEvent", type="mouseReleased", **mouse)

    async def text(self, selector: str) -> str:
        return await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    async def texts(self, selector: str) -> list[str]:
        every = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return await self.evaluate(f"{every}.map((each) => each.innerText)")

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    async def prefer(self, scheme: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path: Path) -> None:
        found = await self.send("Page.captureScreenshot", format="png")
        await trio.Path(path).write_bytes(base64.b64decode(found["data"]))


_CODES = {
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Tab": 9,
}


@asynccontextmanager
async def open_page(browser: str) -> AsyncIterator[Page]:
    """The tab of the browser at this URL (`driven_chromium`), emptied.

    There is one at a time: a tab of its own would start a process, 0.6 s of CPU.
    """
    async with (
        open_websocket_url(browser, max_message_size=64 * 1024 * 1024) as socket,
        trio.open_nursery() as nursery,
    ):
        page = Page(socket)
        nursery.start_soon(page.listen)
        targets = (await page.send("Target.getTargets"))["targetInfos"]
        (tab,) = (each["targetId"] for each in targets if each["type"] == "page")
        attached = await page.send("Target.attachToTarget", targetId=tab, flatten=True)
        page.session = attached["sessionId"]
        await page.go("about:blank")
        for domain in ("Page", "Runtime", "Log"):
            await page.send(f"{domain}.enable")
        yield page
        nursery.cancel_scope.cancel()


@contextmanager
def driven_chromium(directory: Path) -> Iterator[str]:
    """A browser that runs during the block, and the URL by which `open_page` drives it."""
    with chromium(program("chromium"), directory, "--hide-scrollbars", "about:blank") as process:
        yield _debugging_url(process, directory / "profile" / "DevToolsActivePort")


@contextmanager
def chromium(path: str, directory: Path, *arguments: str) -> Iterator[psutil.Popen]:
    """A headless browser that reaches only this machine."""
    command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    command += ["--no-proxy-server", "--remote-debugging-port=0"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]
    command += [f"--user-data-dir={directory}/profile", *arguments]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = psutil.Popen(command, stderr=subprocess.DEVNULL, **quiet)
    try:
        yield process
    finally:
        every = [process, *process.children(recursive=True)]
        process.terminate()
        _, alive = psutil.wait_procs(every, timeout=PATIENCE)
        for each in alive:
            each.kill()


def _debugging_url(process: psutil.Popen, file: Path) -> str:
    """The port is the first line of a file of the browser, the path the second."""
    while process.poll() is None:
        with suppress(FileNotFoundError):
            port, _, path = file.read_text().partition("\n")
            if re.fullmatch(r"/devtools/browser/[0-9a-f-]{36}", path):
                return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.02)
    raise AssertionError("chromium ended")

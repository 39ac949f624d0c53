"""Makes the pictures of docs/tracing.md: the page of `trace view` in headless Chromium.

    PYTHONPATH=tests python -m support.screenshots

Run it where the package is installed, after a change of the page. Look at the pictures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import trio

from conductor.tracing.reader import Trace
from conductor.tracing.records import RequestRecord
from conductor.viewer.app import open_viewer
from conductor.viewer.trace_source import TraceSource
from support.chromium import Page, driven_chromium, open_page

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
CHAIN: Final = """
version: 1
proxies:
  - use: context
    with: {text: Answer in two sentences.}
  - use: permissions
    with:
      rules:
        - {name: no deploying, action: deny, title: '(?i)deploy'}
        - {name: edits are fine, action: allow_once, kind: [edit]}
  - use: usage
agent:
  use: test-agent
  with: {session_ids: counted}
"""
COST: Final = {
    "sessionId": "session-1",
    "update": {
        "sessionUpdate": "usage_update",
        "used": 9121,
        "size": 200000,
        "cost": {"amount": 0.0421, "currency": "USD"},
    },
}
TURNS: Final = (
    "say The release is on Friday.\ntool Search CHANGELOG.md\nwait 0.1\n"
    f"notify session/update {json.dumps(COST)}",
    "ask Edit CHANGELOG.md\nwait 0.3\nsay Done.",
    "plan Read the notes; Edit the change log\nwait 0.2",
    "ask Deploy to production\nwait 0.1\nsay I was not allowed to deploy.",
    "stream 20 80\nwait 0.2",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        record(directory)
        with driven_chromium(directory) as browser:
            trio.run(take, browser, directory / "demo.jsonl")


def record(directory: Path) -> None:
    """Write the trace. In the root of the repository, so that places of handlers are relative."""
    (directory / "demo.yaml").write_text(CHAIN)
    command = [sys.executable, "-m", "conductor", "prompt", "--trace", directory / "demo.jsonl"]
    subprocess.run([*command, directory / "demo.yaml", *TURNS], cwd=ROOT, check=True)


async def take(browser: str, path: Path) -> None:
    """Two pictures: the way of a permission request, light; a changed prompt, dark."""
    requests = [each for each in Trace.load(path).records if isinstance(each, RequestRecord)]
    asked = [each.n for each in requests if each.method == "session/request_permission"][-3]
    prompted = next(each.n for each in requests if each.cause and each.method == "session/prompt")
    with TraceSource(path) as source:
        async with open_viewer(source) as url, open_page(browser) as page:
            await page.resize(1280, 700)
            await page.go(url)
            await page.wait_for("document.querySelectorAll('.row:not([hidden])').length > 10")
            await show(page, asked, tab="3", scheme="light")
            await page.screenshot(IMAGES / "trace-view-way.png")
            await page.resize(1280, 640)
            await show(page, prompted, tab="2", scheme="dark")
            await page.screenshot(IMAGES / "trace-view-changes.png")


async def show(page: Page, number: int, *, tab: str, scheme: str) -> None:
    """Select a message, a few rows below the top, with this tab of the panel."""
    await page.prefer(scheme)
    await page.evaluate("document.querySelector('.list').focus()")
    await page.press("Home")
    await page.press("ArrowDown")
    selected = "document.querySelector('.row.selected .number')?.textContent"
    while await page.evaluate(selected) != str(number):
        await page.press("ArrowDown")
    await page.press(tab)
    await page.evaluate(
        "(() => { const row = document.querySelector('.row.selected');"
        " for (let at = row; at; at = at.parentElement) if (at.scrollHeight > at.clientHeight + 1"
        " && getComputedStyle(at).overflowY !== 'visible')"
        " { at.scrollTop += row.getBoundingClientRect().top"
        " - at.getBoundingClientRect().top - 240; return } })()"
    )
    await trio.sleep(0.5)


if __name__ == "__main__":
    main()

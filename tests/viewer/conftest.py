"""Traces, and their pages in headless Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.chromium import Page, driven_chromium, open_page
from support.trace_records import TraceScript


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[str]:
    """One browser for the tests of a file: its start and its end take longer than most tests. Other
    files check that no process is left."""
    with driven_chromium(tmp_path_factory.mktemp("chromium")) as url:
        yield url


@pytest.fixture
async def page(browser) -> AsyncIterator[Page]:
    """An empty page, 1280 pixels wide; all share a tab."""
    async with open_page(browser) as page:
        await page.resize(1280, 800)
        yield page


@pytest.fixture
def turn() -> TraceScript:
    """A turn with a tool call, through a proxy that changes the prompt."""
    script = TraceScript()
    params = {"sessionId": "s", "prompt": [{"type": "text", "text": "What is new?"}]}
    first = script.request("client>notes", "session/prompt", params)
    blocks = [{"type": "text", "text": "Be kind."}, *params["prompt"]]
    second = script.request("notes>agent", "session/prompt", {**params, "prompt": blocks}, cause=1)
    script.handler("notes", first, method="session/prompt", handler="/src/notes.py:7", took=0.1)
    started = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read a.txt"}
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    for update in (started, ended):
        change = {"sessionId": "s", "update": update}
        came = script.notify("agent>notes", "session/update", change)
        script.notify("notes>client", "session/update", change, cause=came)
    cost = {"amount": 0.25, "currency": "USD"}
    state = {"sessionUpdate": "usage_update", "used": 500, "size": 1000, "cost": cost}
    script.notify("agent>notes", "session/update", {"sessionId": "s", "update": state})
    usage = {"totalTokens": 42, "inputTokens": 40, "outputTokens": 2}
    answer = {"stopReason": "end_turn", "usage": usage}
    script.answer(first, answer, cause=script.answer(second, answer))
    return script
